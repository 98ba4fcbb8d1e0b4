"""Trains on handwritten digits, saves checkpoints, and goes on at the last one when the job is started again.

    smddprun -np 2 --max-restarts 3 python examples/checkpoint.py --checkpoint-dir /tmp/digits
    smddprun -np 2 --max-restarts 3 python examples/checkpoint.py --checkpoint-dir /tmp/digits --fail-at 100

The second command ends rank 1 at step 100 in its first try, and smddprun starts all ranks again.
"""

import argparse
import os
import sys
import time

import numpy as np
import tensorflow as tf
from data import batches_of_this_rank, load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train with checkpoints.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--checkpoint-dir", required=True, help="where the checkpoints are; rank 0 writes")
parser.add_argument("--save-every", type=int, default=40, help="steps between checkpoints (default: 40)")
parser.add_argument("--fail-at", type=int, help="the last rank ends by an error at this step, once")
arguments = parser.parse_args()

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())

train_images, train_labels, test_images, test_labels = load_images()
dataset = batches_of_this_rank((train_images, train_labels), arguments.batch_size)
steps = arguments.epochs * len(dataset)
# The position in the data is part of the checkpoint, so after a restart no image is left out or seen twice.
batches = iter(dataset.repeat())

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

checkpoint = sdp.Checkpoint(
    arguments.checkpoint_dir, model=model, optimizer=optimizer, per_rank={"batches": batches}
)
first = checkpoint.restore()  # collective; None if there is no checkpoint
if first is None:
    first = 0
    sdp.broadcast_variables(model.weights, root_rank=0)
progress(f"begins at step {first} of {steps}")


@tf.function
def training_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


last_rank = sdp.rank() == sdp.size() - 1
first_try = os.environ.get("SMDDP_RESTART_COUNT", "0") == "0"
begin = time.perf_counter()
for step in range(first, steps):
    loss = training_step(*next(batches))
    if step == arguments.fail_at and last_rank and first_try:
        raise RuntimeError(f"step {step} fails, as --fail-at asks")
    if (step + 1) % arguments.save_every == 0:
        checkpoint.save(step + 1)  # collective; it returns when all of it is written
        progress(f"step {step + 1}/{steps}: loss {float(loss):.4f}, saved")
seconds = time.perf_counter() - begin

predicted = np.argmax(model(test_images, training=False).numpy(), axis=1)
accuracy = np.mean(predicted == test_labels)
images = (steps - first) * arguments.batch_size
sys.exit(summarize(model.get_weights(), images, max(seconds, 1e-9), f"test accuracy  {accuracy:.2%}"))
