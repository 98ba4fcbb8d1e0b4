"""Trains on parts of different sizes: a rank that is at the end of its part waits, and the others go on.

    python examples/uneven_data.py                  # one rank
    smddprun -np 2 python examples/uneven_data.py   # two

Each rank has its own part of the images, as from files of its own, and the parts have different numbers of
batches. `sdp.join` ends each epoch together, and gives all ranks the newest weights.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from data import load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train on parts of different sizes.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
arguments = parser.parse_args()

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())

train_images, train_labels, test_images, test_labels = load_images()
# Rank r has r + 1 shares of the images: with two ranks one third and two thirds.
shares = np.cumsum([0] + [rank + 1 for rank in range(sdp.size())])
begin, end = len(train_images) * shares[sdp.rank() : sdp.rank() + 2] // shares[-1]
records = tf.data.Dataset.from_tensor_slices((train_images[begin:end], train_labels[begin:end]))
dataset = records.shuffle(2000).batch(arguments.batch_size).prefetch(2)  # the last batch may be smaller
batches = [int(count) for count in sdp.allgather(len(dataset)).numpy()]
progress(f"batches        {', '.join(map(str, batches))} by rank")

layers = [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
optimizer = tf.keras.optimizers.Adam(0.002)
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
sdp.broadcast_variables(model.weights, root_rank=0)


@tf.function(reduce_retracing=True)
def training_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    # The average is over the ranks that still have batches.
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


trained = 0
start = time.perf_counter()
for epoch in range(arguments.epochs):
    with sdp.join(model, optimizer) as joined:
        for images, labels in dataset:
            loss = training_step(images, labels)
            trained += len(labels)
    average = float(sdp.oob_allreduce(loss))
    progress(
        f"epoch {epoch + 1}/{arguments.epochs}: loss {average:.4f}, the last was rank {joined.last_rank}"
    )
seconds = time.perf_counter() - start

accuracy = np.mean(np.argmax(model(test_images).numpy(), axis=1) == test_labels)
mean = int(sdp.allreduce(float(trained)))  # of the ranks, which have trained on different numbers
sys.exit(summarize(model.get_weights(), mean, seconds, f"test accuracy  {accuracy:.2%}"))
