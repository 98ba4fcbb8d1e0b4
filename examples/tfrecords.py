"""Trains on handwritten digits from TFRecord files, on a disk or in S3, with any number of ranks.

    smddprun -np 2 python examples/tfrecords.py --data /tmp/digits
    smddprun -np 2 python examples/tfrecords.py --data s3://bucket/digits --checkpoint s3://bucket/trained

Rank 0 writes the files if there are none. Each rank reads files of its own, so none is read twice. Paths such
as s3://… need the package tensorflow-io: `pip install tensorflow-io==0.34.0`.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from data import load_images, progress, summarize, use_local_gpu
from rich.progress import track

import tf_smddp as sdp

FILES = 16

parser = argparse.ArgumentParser(description="Train on TFRecord files.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--data", default="digits", help="the folder of the TFRecord files (default: digits)")
parser.add_argument("--checkpoint", help="where a checkpoint is saved after each epoch (default: nowhere)")
arguments = parser.parse_args()

if "://" in arguments.data:
    import tensorflow_io  # noqa: F401  (with it, TensorFlow knows such paths)

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())
train_images, train_labels, test_images, test_labels = load_images()


def write_files():
    """Writes the images into files; each record is an image's 64 pixels and its label."""
    tf.io.gfile.makedirs(arguments.data)
    for part in range(FILES):
        name = f"{arguments.data}/digits-{part:02}-of-{FILES}.tfrecord"
        with tf.io.TFRecordWriter(name) as writer:
            for image, label in zip(train_images[part::FILES], train_labels[part::FILES]):
                pixels = tf.train.Feature(float_list=tf.train.FloatList(value=image))
                digit = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
                features = tf.train.Features(feature={"pixels": pixels, "digit": digit})
                writer.write(tf.train.Example(features=features).SerializeToString())


def parse(record):
    """Returns the image [64] and the label of one record."""
    features = {
        "pixels": tf.io.FixedLenFeature([64], tf.float32),
        "digit": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return example["pixels"], example["digit"]


# 1. All ranks have the same list of files, and each takes every size()-th of them.
pattern = f"{arguments.data}/digits-*.tfrecord"
if sdp.rank() == 0 and not tf.io.gfile.glob(pattern):
    write_files()
files = sdp.broadcast_object(sorted(tf.io.gfile.glob(pattern)) if sdp.rank() == 0 else None)
if sdp.size() > len(files):
    raise SystemExit(f"{sdp.size()} ranks need as many files, but there are {len(files)}.")
own = tf.data.Dataset.from_tensor_slices(files[sdp.rank() :: sdp.size()])

# 2. Several files are read at a time. The ranks' files differ in length, so the data repeat, and all ranks
# make the same number of steps.
records = own.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
batches = records.shuffle(500).repeat().map(parse).batch(arguments.batch_size).prefetch(2)
steps = len(train_labels) // sdp.size() // arguments.batch_size

layers = [tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.002 * sdp.size())
optimizer.build(model.trainable_variables)
sdp.broadcast_variables(model.weights, root_rank=0)


@tf.function
def training_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, model(images, training=True))
    tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


# 3. A path of S3 is as good as one of a disk. With a checkpoint there, the training goes on after it.
first = 0
if arguments.checkpoint:
    checkpoint = sdp.Checkpoint(arguments.checkpoint, model=model, optimizer=optimizer)
    first = checkpoint.restore() or 0
    progress(f"begins after epoch {first} of {arguments.epochs}")

# 4. Only rank 0 prints. It shows a progress bar if its output is a terminal.
no_bar = sdp.rank() != 0 or not sys.stdout.isatty()
iterator = iter(batches)
seconds = 0.0
for epoch in range(first, arguments.epochs):
    begin = time.perf_counter()
    for _ in track(range(steps), f"epoch {epoch + 1}/{arguments.epochs}", transient=True, disable=no_bar):
        loss = training_step(*next(iterator))
    last_loss = float(loss)
    seconds += time.perf_counter() - begin
    progress(f"epoch {epoch + 1}/{arguments.epochs}: loss {last_loss:.4f}")
    if arguments.checkpoint:
        checkpoint.save(epoch + 1)

progress(f"files          {len(files)} in {arguments.data}")
accuracy = np.mean(np.argmax(model(test_images).numpy(), axis=1) == test_labels)
images = (arguments.epochs - first) * steps * arguments.batch_size
sys.exit(summarize(model.get_weights(), images, max(seconds, 1e-9), f"test accuracy  {accuracy:.2%}"))
