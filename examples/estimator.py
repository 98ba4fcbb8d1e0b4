"""Trains on handwritten digits with tf.estimator, which TensorFlow has up to 2.15.

python examples/estimator.py                  # one rank
smddprun -np 2 python examples/estimator.py   # two
"""

import argparse
import sys
import tempfile
import time

import tensorflow as tf
from data import load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train with tf.estimator.")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--model-dir", help="rank 0's folder for checkpoints (default: a temporary one)")
arguments = parser.parse_args()
if not hasattr(tf, "estimator"):
    raise SystemExit(f"TensorFlow {tf.__version__} has no tf.estimator; use examples/v1_session.py.")

sdp.init()
use_local_gpu()
train_images, train_labels, test_images, test_labels = load_images()


def model_fn(features, labels, mode):
    dense = tf.compat.v1.layers.dense
    logits = dense(dense(features, 128, tf.nn.relu), 10)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    # minimize() averages the gradients over all ranks.
    optimizer = sdp.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.002 * sdp.size()))
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def training_input():
    # The data repeat without end, so all ranks make the same number of steps.
    dataset = sdp.shard(tf.data.Dataset.from_tensor_slices((train_images, train_labels)))
    return dataset.shuffle(2000).repeat().batch(arguments.batch_size, drop_remainder=True)


def test_input():
    return tf.data.Dataset.from_tensor_slices((test_images, test_labels)).batch(len(test_labels))


class PrintLoss(tf.compat.v1.train.SessionRunHook):
    """Prints the loss every 100 steps."""

    steps = 0

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(tf.compat.v1.losses.get_losses())

    def after_run(self, run_context, run_values):
        self.steps += 1
        if self.steps % 100 == 0:
            progress(f"step {self.steps}/{arguments.steps}: loss {run_values.results[0]:.4f}")


with tempfile.TemporaryDirectory() as scratch:
    # Each rank writes checkpoints of its own, and only rank 0's are kept. The hook gives all ranks rank 0's
    # variables when the training begins, also after a restored checkpoint.
    folder = arguments.model_dir if arguments.model_dir and sdp.rank() == 0 else scratch
    config = tf.estimator.RunConfig(folder, tf_random_seed=1 + sdp.rank())
    estimator = tf.estimator.Estimator(model_fn, config=config)
    begin = time.perf_counter()
    hooks = [sdp.BroadcastGlobalVariablesHook(0), PrintLoss()]
    estimator.train(training_input, steps=arguments.steps, hooks=hooks)
    seconds = time.perf_counter() - begin

    accuracy = estimator.evaluate(test_input)["accuracy"]
    names = [name for name in estimator.get_variable_names() if "Adam" not in name and "power" not in name]
    weights = [estimator.get_variable_value(name) for name in sorted(names)]
images = arguments.steps * arguments.batch_size
sys.exit(summarize(weights, images, seconds, f"test accuracy  {accuracy:.2%}"))
