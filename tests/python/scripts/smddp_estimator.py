"""A tf.estimator training script, written as scripts for SMDDP are."""

import argparse

import numpy as np
import tensorflow as tf

import smdistributed.dataparallel.tensorflow as sdp

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--output", required=True)
args = parser.parse_args()

sdp.init()


def model_fn(features, labels, mode):
    dense = tf.compat.v1.layers.dense
    # The seed differs by rank: the hook sees to it that all begin with rank 0's weights.
    hidden = dense(features, 16, tf.tanh, kernel_initializer=tf.random_normal_initializer(seed=sdp.rank()))
    prediction = dense(hidden, 1, kernel_initializer=tf.random_normal_initializer(seed=sdp.rank()))
    loss = tf.reduce_mean(tf.square(prediction - labels))
    optimizer = sdp.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    random = np.random.default_rng(0)
    features = random.normal(size=(1280, 12)).astype(np.float32)
    targets = np.sin(features.sum(axis=1, keepdims=True))
    dataset = tf.data.Dataset.from_tensor_slices((features, targets))
    return dataset.shard(sdp.size(), sdp.rank()).repeat().batch(args.batch_size)


for i in range(2):  # the second time, rank 0 begins with its checkpoint, and the others anew
    folder = "model" if sdp.rank() == 0 else f"scratch.{sdp.rank()}.{i}"
    estimator = tf.estimator.Estimator(model_fn, model_dir=f"{args.output}/{folder}")
    estimator.train(input_fn, steps=args.steps, hooks=[sdp.BroadcastGlobalVariablesHook(0)])

names = [name for name in estimator.get_variable_names() if "dense" in name and "Adam" not in name]
np.savez(
    f"{args.output}/weights.{sdp.rank()}.npz",
    *[estimator.get_variable_value(name) for name in sorted(names)],
)
