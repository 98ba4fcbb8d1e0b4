"""Trains on handwritten digits with Keras's `fit`, with any number of ranks.

    python examples/keras_fit.py                  # one rank
    smddprun -np 2 python examples/keras_fit.py   # two

It works with Keras 2 and Keras 3. With --log-dir, TensorBoard shows the losses and what the collectives cost.
"""

import argparse
import sys
import time

import tensorflow as tf
from data import batches_of_this_rank, load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp
from tf_smddp.keras import callbacks

parser = argparse.ArgumentParser(description="Train on handwritten digits with Keras's fit.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--log-dir", help="a folder for TensorBoard, which must be installed (default: none)")
arguments = parser.parse_args()

# 1. Join the job; use one GPU for each local rank.
sdp.init()
use_local_gpu()

# 2. Each rank trains on its own part of the data, and has a seed of its own for the order and for dropout.
tf.keras.utils.set_random_seed(1 + sdp.rank())
train_images, train_labels, test_images, test_labels = load_images()
dataset = batches_of_this_rank((train_images, train_labels), arguments.batch_size)

model = tf.keras.Sequential(
    [
        tf.keras.Input(shape=(64,)),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dropout(0.2),
        tf.keras.layers.Dense(10),
    ]
)
# 3. The batch of all ranks is size() times as large, so the learning rate is, too; the optimizer averages the
# gradients.
optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.Adam(0.002 * sdp.size()))
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])

# 4. All begin with rank 0's weights, and the logs are averages over all ranks.
used = [
    callbacks.BroadcastGlobalVariablesCallback(0),
    callbacks.MetricAverageCallback(),
    tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: progress(
            f"epoch {epoch + 1}/{arguments.epochs}: loss {logs['loss']:.4f}, accuracy {logs['accuracy']:.2%}"
        )
    ),
]
# 5. Every rank takes part in these figures; only rank 0 writes.
if arguments.log_dir:
    used.append(callbacks.TensorBoardStats(arguments.log_dir))
    if sdp.rank() == 0:
        used.append(tf.keras.callbacks.TensorBoard(arguments.log_dir))

begin = time.perf_counter()
model.fit(dataset, epochs=arguments.epochs, callbacks=used, verbose=0)
seconds = time.perf_counter() - begin

_, accuracy = model.evaluate(test_images, test_labels, verbose=0)
images = arguments.epochs * len(dataset) * arguments.batch_size
sys.exit(summarize(model.get_weights(), images, seconds, f"test accuracy  {accuracy:.2%}"))
