"""Trains a GAN on handwritten digits: two models, two optimizers, two tapes in one step.

    python examples/gan.py                  # one rank
    smddprun -np 2 python examples/gan.py   # two

The generator makes images from noise, and the discriminator tells them from real ones. Each has a tape and
an optimizer of its own. All ranks must reduce the two in the same order, which a `tf.function` does.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from data import batches_of_this_rank, load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train a GAN on handwritten digits.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
arguments = parser.parse_args()

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())

train_images, _, test_images, _ = load_images()
dataset = batches_of_this_rank(train_images, arguments.batch_size)
NOISE = 16


def make_model(inputs, outputs, activation=None):
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(inputs,)),
            tf.keras.layers.Dense(128),
            tf.keras.layers.LeakyReLU(),
            tf.keras.layers.Dense(outputs, activation=activation),
        ]
    )


generator, discriminator = make_model(NOISE, 64, "sigmoid"), make_model(64, 1)
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
optimizers = [tf.keras.optimizers.Adam(0.0005 * sdp.size(), beta_1=0.5) for _ in range(2)]
for model, optimizer in zip((generator, discriminator), optimizers):
    optimizer.build(model.trainable_variables)
    sdp.broadcast_variables(model.weights, root_rank=0)


@tf.function
def training_step(real):
    # Each rank has a seed of its own, so the ranks' noise differs.
    noise = tf.random.normal([arguments.batch_size, NOISE])
    with tf.GradientTape() as generator_tape, tf.GradientTape() as discriminator_tape:
        fake = generator(noise, training=True)
        of_real, of_fake = discriminator(real, training=True), discriminator(fake, training=True)
        generator_loss = cross_entropy(tf.ones_like(of_fake), of_fake)
        discriminator_loss = cross_entropy(tf.ones_like(of_real), of_real) + cross_entropy(
            tf.zeros_like(of_fake), of_fake
        )
    for tape, loss, model, optimizer in (
        (generator_tape, generator_loss, generator, optimizers[0]),
        (discriminator_tape, discriminator_loss, discriminator, optimizers[1]),
    ):
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return generator_loss, discriminator_loss


begin = time.perf_counter()
for epoch in range(arguments.epochs):
    for real in dataset:
        losses = training_step(real)
    both = [float(loss) for loss in sdp.oob_allreduce(list(losses))]
    progress(f"epoch {epoch + 1}/{arguments.epochs}: generator {both[0]:.4f}, discriminator {both[1]:.4f}")
seconds = time.perf_counter() - begin

# How far the average generated image is from the average real one, per pixel; noise alone is about 0.3 away.
fake = generator(tf.random.normal([1000, NOISE]), training=False).numpy()
distance = float(sdp.oob_allreduce(np.abs(fake.mean(axis=0) - test_images.mean(axis=0)).mean()))
weights = [*generator.get_weights(), *discriminator.get_weights()]
images = arguments.epochs * len(dataset) * arguments.batch_size
sys.exit(summarize(weights, images, seconds, f"distance       {distance:.3f} of the mean images"))
