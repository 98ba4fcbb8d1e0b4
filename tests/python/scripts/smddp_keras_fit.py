"""A Keras training script, written as scripts for SMDDP are."""

import argparse

import numpy as np
import tensorflow as tf

import smdistributed.dataparallel.tensorflow.keras as dist
from smdistributed.dataparallel.tensorflow.keras import callbacks

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--output", required=True)
args = parser.parse_args()

dist.init()

random = np.random.default_rng(0)
images = random.normal(size=(1280, 8, 8, 1)).astype(np.float32)
labels = images.sum(axis=(1, 2, 3)).astype(np.int64) % 10
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shard(dist.size(), dist.rank()).repeat().batch(args.batch_size)

# The seed differs by rank: the callback sees to it that all begin with rank 0's weights.
tf.keras.utils.set_random_seed(dist.rank())
model = tf.keras.Sequential(
    [
        tf.keras.Input([8, 8, 1]),
        tf.keras.layers.Conv2D(8, 3, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
optimizer = dist.DistributedOptimizer(tf.keras.optimizers.Adam(0.01), compression=dist.Compression.none)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])

history = model.fit(
    dataset,
    steps_per_epoch=args.steps // 2,
    epochs=2,
    callbacks=[
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
    ],
    verbose=2 if dist.rank() == 0 else 0,
)
np.savez(
    f"{args.output}/weights.{dist.rank()}.npz",
    *[np.asarray(variable) for variable in model.trainable_variables],
    np.asarray(history.history["loss"]),
)
if dist.rank() == 0:
    model.save(args.output + "/model.keras")
