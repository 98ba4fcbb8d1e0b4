"""A TensorFlow 2 training loop, written as scripts for SMDDP are: its imports and nothing of ours."""

import argparse

import numpy as np
import tensorflow as tf

import smdistributed.dataparallel.tensorflow as dist

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--output", required=True)
args = parser.parse_args()

dist.init()

gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[dist.local_rank()], "GPU")

random = np.random.default_rng(0)
images = random.normal(size=(1280, 8, 8, 1)).astype(np.float32)
labels = images.sum(axis=(1, 2, 3)).astype(np.int64) % 10
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shard(dist.size(), dist.rank()).repeat().batch(args.batch_size)

tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.01)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        loss = loss_object(labels, model(images, training=True))
    tape = dist.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    if first_batch:
        dist.broadcast_variables(model.variables, root_rank=0)
        dist.broadcast_variables(optimizer.variables, root_rank=0)
    return dist.oob_allreduce(loss)


for batch, (images, labels) in enumerate(dataset.take(args.steps)):
    loss = training_step(images, labels, batch == 0)
    if batch % 10 == 0 and dist.rank() == 0:
        print(f"step {batch}: loss {loss:.6f}")

if dist.rank() == 0:
    checkpoint.save(args.output + "/checkpoint")
np.savez(f"{args.output}/weights.{dist.rank()}.npz", *[np.asarray(v) for v in model.trainable_variables])
