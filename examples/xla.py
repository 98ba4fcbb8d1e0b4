"""Trains on handwritten digits with a training step that XLA compiles, collectives and all.

    python examples/xla.py                  # one rank
    smddprun -np 2 python examples/xla.py   # two

The whole step is one compiled program: forward and backward pass, allreduce and the optimizer's update.
All ranks must compile the same program, so batches have one shape: the incomplete last one is left out.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from data import batches_of_this_rank, load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train with a step that XLA compiles.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
arguments = parser.parse_args()

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())

train_images, train_labels, test_images, test_labels = load_images()
dataset = batches_of_this_rank((train_images, train_labels), arguments.batch_size)

model = tf.keras.Sequential(
    [
        tf.keras.Input(shape=(64,)),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.002 * sdp.size())
optimizer.build(model.trainable_variables)
# All variables exist already, so all ranks can take rank 0's values before the first step.
sdp.broadcast_variables(model.weights, root_rank=0)


@tf.function(jit_compile=True)
def training_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


begin = time.perf_counter()
for epoch in range(arguments.epochs):
    for images, labels in dataset:
        loss = training_step(images, labels)
    # The average over all ranks; this is a collective, so it is not under `if sdp.rank() == 0`.
    average = float(sdp.oob_allreduce(loss))
    progress(f"epoch {epoch + 1}/{arguments.epochs}: loss {average:.4f}")
seconds = time.perf_counter() - begin

predicted = np.argmax(model(test_images, training=False).numpy(), axis=1)
accuracy = np.mean(predicted == test_labels)
images = arguments.epochs * len(dataset) * arguments.batch_size
sys.exit(summarize(model.get_weights(), images, seconds, f"test accuracy  {accuracy:.2%}"))
