"""Trains on handwritten digits in a v1 graph, with a MonitoredTrainingSession, for scripts of TensorFlow 1.

python examples/v1_session.py                  # one rank
smddprun -np 2 python examples/v1_session.py   # two
"""

import argparse
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf
from data import load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train in a v1 graph.")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--checkpoint-dir", help="rank 0 saves checkpoints here (default: none)")
arguments = parser.parse_args()

tf.disable_eager_execution()
sdp.init()
use_local_gpu()
tf.set_random_seed(1 + sdp.rank())

train_images, train_labels, test_images, test_labels = load_images()
# The data repeat without end, so all ranks make the same number of steps.
dataset = sdp.shard(tf.data.Dataset.from_tensor_slices((train_images, train_labels)))
dataset = dataset.shuffle(2000).repeat().batch(arguments.batch_size, drop_remainder=True)
images, labels = tf.data.make_one_shot_iterator(dataset).get_next()

weights = [
    tf.get_variable("hidden/kernel", [64, 128], initializer=tf.glorot_uniform_initializer()),
    tf.get_variable("hidden/bias", [128], initializer=tf.zeros_initializer()),
    tf.get_variable("output/kernel", [128, 10], initializer=tf.glorot_uniform_initializer()),
    tf.get_variable("output/bias", [10], initializer=tf.zeros_initializer()),
]
hidden = tf.nn.relu(images @ weights[0] + weights[1])
logits = hidden @ weights[2] + weights[3]
loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)

# minimize() averages the gradients over all ranks.
optimizer = sdp.DistributedOptimizer(tf.train.AdamOptimizer(0.002 * sdp.size()))
global_step = tf.train.get_or_create_global_step()
train_op = optimizer.minimize(loss, global_step=global_step)

# The hook gives all ranks rank 0's variables when the session begins, also after a restored checkpoint.
hooks = [sdp.BroadcastGlobalVariablesHook(0)]
folder = arguments.checkpoint_dir if sdp.rank() == 0 else None
with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
    first = int(session.run(global_step))
    begin = time.perf_counter()
    for step in range(first, arguments.steps):
        last_loss, _ = session.run([loss, train_op])
        if (step + 1) % 100 == 0:
            progress(f"step {step + 1}/{arguments.steps}: loss {last_loss:.4f}")
    seconds = time.perf_counter() - begin
    found = session.run(weights)

outputs = np.maximum(test_images @ found[0] + found[1], 0) @ found[2] + found[3]
accuracy = np.mean(np.argmax(outputs, axis=1) == test_labels)
sys.exit(
    summarize(
        found,
        max(arguments.steps - first, 0) * arguments.batch_size,
        seconds,
        f"test accuracy  {accuracy:.2%}",
    )
)
