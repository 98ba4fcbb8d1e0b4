"""Trains on handwritten digits with TensorFlow's own parameter servers, asynchronously.

smddprun --ps 1 -np 2 python examples/parameter_servers.py   # one server, two workers, and a chief

The chief runs this script and hands steps to whichever worker is free. The variables are on the server.
tf_smddp's engine has no part in it.
"""

import argparse
import time

import numpy as np
import tensorflow as tf
from data import load_images

parser = argparse.ArgumentParser(description="Train with parameter servers.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step (default: 32)")
arguments = parser.parse_args()
train_images, train_labels, test_images, test_labels = load_images()

try:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    resolver.cluster_spec().num_tasks("ps")
except ValueError:
    raise SystemExit(
        "There is no parameter server; run: smddprun --ps 1 -np 2 python " + parser.prog
    ) from None
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((64,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)]
    )
    optimizer = tf.keras.optimizers.Adam(0.002)
    optimizer.build(model.trainable_variables)  # its variables, too, are made on the server


def worker_batches():
    # Each worker shuffles all images in an order of its own.
    data = tf.data.Dataset.from_tensor_slices((train_images, train_labels))
    return data.shuffle(2000).repeat().batch(arguments.batch_size)


@tf.function
def step(batches):
    def on_worker(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    return strategy.run(on_worker, args=next(batches))


batches = iter(coordinator.create_per_worker_dataset(worker_batches))
steps_per_epoch = len(train_images) // arguments.batch_size
begin = time.perf_counter()
for epoch in range(1, arguments.epochs + 1):
    losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps_per_epoch)]
    coordinator.join()  # after this all steps are done
    loss = np.mean([each.fetch() for each in losses])
    print(f"epoch {epoch}/{arguments.epochs}: loss {loss:.4f}", flush=True)
seconds = time.perf_counter() - begin

# The chief has the test images, and reads the variables from the server.
accuracy = np.mean(np.argmax(model(test_images), axis=1) == test_labels)
workers = resolver.cluster_spec().num_tasks("worker")
print(f"workers        {workers}")
images = arguments.epochs * steps_per_epoch * arguments.batch_size
print(f"training time  {seconds:.1f} s, {images / seconds:.0f} images/s")
print(f"test accuracy  {accuracy:.2%}")
