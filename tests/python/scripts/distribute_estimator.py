"""A script for one process with an estimator and train_distribute. Its argument is a folder."""

import hashlib
import json
import os
import sys
import time

import numpy as np
import tensorflow as tf

work = sys.argv[1]
strategy = tf.distribute.MirroredStrategy()
features = np.random.RandomState(0).normal(size=(192, 8)).astype("float32")


def input_fn():
    labels = features.sum(1, keepdims=True)
    dataset = tf.data.Dataset.from_tensor_slices(({"x": features}, labels))
    return dataset.repeat().batch(24 // strategy.num_replicas_in_sync)


def eval_fn():
    return input_fn().take(8 * strategy.num_replicas_in_sync)


def model_fn(features, labels, mode):
    initial = tf.compat.v1.glorot_uniform_initializer(seed=1)
    predictions = tf.compat.v1.layers.dense(features["x"], 1, name="dense", kernel_initializer=initial)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions)
    loss = tf.reduce_mean((predictions - labels) ** 2)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.05).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class SlowChief(tf.estimator.CheckpointSaverListener):
    def before_save(self, session, global_step):
        if global_step == 20 and '"index": 0' in os.environ.get("TF_CONFIG", ""):
            time.sleep(2)


config = tf.estimator.RunConfig(
    train_distribute=strategy, eval_distribute=strategy, save_checkpoints_steps=10
)
estimator = tf.estimator.Estimator(model_fn, os.path.join(work, "model"), config)
estimator.train(input_fn, max_steps=20, saving_listeners=[SlowChief()])
# As a script that is started again: it goes on at step 20.
estimator = tf.estimator.Estimator(model_fn, os.path.join(work, "model"), config)
estimator.train(input_fn, max_steps=30)
evaluated = estimator.evaluate(eval_fn)
kernel = estimator.get_variable_value("dense/kernel")
receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.zeros([1, 8])})
exported = estimator.export_saved_model(os.path.join(work, "exported"), receiver)
(serve,) = tf.saved_model.load(exported.decode()).signatures.values()
(served,) = serve(x=tf.ones([1, 8])).values()
np.testing.assert_allclose(served, [[kernel.sum() + estimator.get_variable_value("dense/bias").sum()]], 1e-5)
found = {
    "losses": [],
    "evaluated": [float(evaluated["loss"]), float(evaluated["global_step"])],
    "weights": float(np.abs(kernel, dtype="float64").sum()),
    "digest": hashlib.sha256(kernel.tobytes()).hexdigest(),
}
print("FOUND " + json.dumps(found), flush=True)
