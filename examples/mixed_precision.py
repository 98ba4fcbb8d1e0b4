"""Trains on handwritten digits in mixed precision: float16 with a loss scale, or bfloat16.

    python examples/mixed_precision.py                  # one rank
    smddprun -np 2 python examples/mixed_precision.py   # two

The layers compute in 16 bits, and the weights and their gradients are float32. With float16, Keras scales
the loss, so that small gradients are not lost; a step whose gradients overflow on any rank is left out on
all, because infinity stays infinity in the average.
"""

import argparse
import sys
import time

import tensorflow as tf
from data import batches_of_this_rank, load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp
from tf_smddp.keras import callbacks

parser = argparse.ArgumentParser(description="Train in mixed precision.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--policy", choices=["mixed_float16", "mixed_bfloat16"], default="mixed_float16")
arguments = parser.parse_args()

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())

train_images, train_labels, test_images, test_labels = load_images()
dataset = batches_of_this_rank((train_images, train_labels), arguments.batch_size)

tf.keras.mixed_precision.set_global_policy(arguments.policy)
model = tf.keras.Sequential(
    [
        tf.keras.Input(shape=(64,)),
        tf.keras.layers.Dense(128, activation="relu"),
        # The logits are float32: a softmax in 16 bits loses too much.
        tf.keras.layers.Dense(10, dtype="float32"),
    ]
)
# With float16, compile() puts a LossScaleOptimizer around the optimizer. Each rank checks the averaged
# gradients, which are the same on all, so all have the same scale and leave out the same steps.
optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.Adam(0.002 * sdp.size()))
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])
used = [
    callbacks.BroadcastGlobalVariablesCallback(0),
    callbacks.MetricAverageCallback(),
    tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: progress(
            f"epoch {epoch + 1}/{arguments.epochs}: loss {logs['loss']:.4f}"
        )
    ),
]

begin = time.perf_counter()
model.fit(dataset, epochs=arguments.epochs, callbacks=used, verbose=0)
seconds = time.perf_counter() - begin

progress(f"policy         {arguments.policy}, the optimizer is a {type(model.optimizer).__name__}")
_, accuracy = model.evaluate(test_images, test_labels, verbose=0)
images = arguments.epochs * len(dataset) * arguments.batch_size
sys.exit(summarize(model.get_weights(), images, seconds, f"test accuracy  {accuracy:.2%}"))
