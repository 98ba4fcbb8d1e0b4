"""Trains embeddings with sparse gradients: each step reads few rows of a large table.

    python examples/embeddings.py                  # one rank
    smddprun -np 2 python examples/embeddings.py   # two

A record is an image of a digit as 64 "words": for each pixel, its place and its brightness in 17 steps
(1,088 words). Their embeddings are added, and a dense layer names the digit. The table has many more rows, as
a table of real words would; each step's gradient has only the rows that its images use.
"""

import argparse
import sys
import time

import numpy as np
import tensorflow as tf
from data import batches_of_this_rank, load_images, progress, summarize, use_local_gpu

import tf_smddp as sdp

parser = argparse.ArgumentParser(description="Train embeddings with sparse gradients.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
parser.add_argument("--rows", type=int, default=100_000, help="rows of the table, at least 1088")
arguments = parser.parse_args()

sdp.init()
use_local_gpu()
tf.keras.utils.set_random_seed(1 + sdp.rank())

if arguments.rows < 64 * 17:
    raise SystemExit(f"--rows {arguments.rows}: give at least {64 * 17}, one for each pixel and brightness.")


def words_of(images):
    """Returns the numbers of the rows that images [n, 64] use: int64 [n, 64]."""
    word = np.arange(64) * 17 + np.rint(images * 16).astype(np.int64)
    return word * (arguments.rows // (64 * 17))  # spread over the table


train_images, train_labels, test_images, test_labels = load_images()
dataset = batches_of_this_rank((words_of(train_images), train_labels), arguments.batch_size)

# On the CPU: a GPU adds up rows with the same number in any order, so the ranks' tables would differ.
with tf.device("CPU:0"):
    table = tf.Variable(tf.random.normal([arguments.rows, 16], stddev=0.1), name="table")
dense = tf.keras.layers.Dense(10)
dense.build([None, 16])
variables = [table, *dense.trainable_variables]
loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# Several ranks may have used the same row; scatter_sub, plain SGD, adds up its gradients. Keras 3's adaptive
# optimizers do not: for them, leave sparse_as_dense at its default.
RATE = 0.1 * sdp.size()
sdp.broadcast_variables(variables, root_rank=0)


def logits_of(words):
    with tf.device("CPU:0"):
        rows = tf.nn.embedding_lookup(table, words)
    return dense(tf.reduce_mean(rows, axis=1) * 8)


@tf.function
def training_step(words, labels):
    with tf.GradientTape() as tape:
        loss = loss_function(labels, logits_of(words))
    # The table's gradient is tf.IndexedSlices. With sparse_as_dense=False the ranks exchange its rows, and
    # not a gradient as large as the table.
    tape = sdp.DistributedGradientTape(tape, sparse_as_dense=False)
    rows, *others = tape.gradient(loss, variables)
    with tf.device("CPU:0"):
        table.scatter_sub(tf.IndexedSlices(RATE * 10 * rows.values, rows.indices))
    for variable, gradient in zip(variables[1:], others):
        variable.assign_sub(RATE * gradient)
    return loss


begin = time.perf_counter()
for epoch in range(arguments.epochs):
    for images, labels in dataset:
        loss = training_step(images, labels)
    # The average over all ranks; this is a collective, so it is not under `if sdp.rank() == 0`.
    average = float(sdp.oob_allreduce(loss))
    progress(f"epoch {epoch + 1}/{arguments.epochs}: loss {average:.4f}")
seconds = time.perf_counter() - begin

sent = sum(kind["bytes"] for kind in sdp.stats()["collectives"].values()) / 1e6
steps = arguments.epochs * len(dataset)
whole = arguments.rows * 16 * 4 / 1e6  # 16 float32 in each row
progress(f"sent           {sent / steps:.2f} MB per step and rank; the table has {whole:.1f} MB")
accuracy = np.mean(np.argmax(logits_of(words_of(test_images)).numpy(), axis=1) == test_labels)
images = steps * arguments.batch_size
weights = [tf.convert_to_tensor(variable).numpy() for variable in variables]
sys.exit(summarize(weights, images, seconds, f"test accuracy  {accuracy:.2%}"))
