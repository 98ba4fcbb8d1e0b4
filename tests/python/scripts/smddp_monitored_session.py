"""A v1 training script with MonitoredTrainingSession, written as scripts for SMDDP are."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

import smdistributed.dataparallel.tensorflow as sdp

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--output", required=True)
args = parser.parse_args()

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)
sdp.init()

random = np.random.default_rng(0)
features = random.normal(size=(1280, 12)).astype(np.float32)
targets = np.sin(features.sum(axis=1, keepdims=True))
dataset = tf.data.Dataset.from_tensor_slices((features, targets))
dataset = dataset.shard(sdp.size(), sdp.rank()).repeat().batch(args.batch_size)
x, y = tf.data.make_one_shot_iterator(dataset).get_next()

# The seed differs by rank: the hook sees to it that all begin with rank 0's weights.
weights = [
    tf.get_variable("w1", initializer=tf.random.normal([12, 16], seed=sdp.rank())),
    tf.get_variable("b1", initializer=tf.random.normal([16], seed=sdp.rank())),
    tf.get_variable("w2", initializer=tf.random.normal([16, 1], seed=sdp.rank())),
]
prediction = tf.matmul(tf.tanh(tf.matmul(x, weights[0]) + weights[1]), weights[2])
loss = tf.reduce_mean(tf.square(prediction - y))

global_step = tf.train.get_or_create_global_step()
optimizer = sdp.DistributedOptimizer(tf.train.MomentumOptimizer(0.01, 0.9))
train_op = optimizer.minimize(loss, global_step=global_step)

hooks = [sdp.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=args.steps)]
folder = f"{args.output}/checkpoints" if sdp.rank() == 0 else None
found = None
with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
    while not session.should_stop():
        _, found = session.run([train_op, weights])
np.savez(f"{args.output}/weights.{sdp.rank()}.npz", *found)
