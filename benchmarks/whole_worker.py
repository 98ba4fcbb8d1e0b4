"""Trains a model as a script would: whole_worker.py WAY --model=… --output=FILE; run.py starts it.

WAY is what joins the ranks: alone (nothing), tf_smddp, tf_smddp_rows (likewise, but rows of sparse gradients
are gathered), horovod or multi_worker_mirrored. Rank 0 writes one JSON line: the seconds of a step in each of
some blocks of steps, and the number of ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any, Callable, NamedTuple

import tensorflow as tf
from training.models import make_task

WARM_UP_STEPS = 5
BLOCKS = 5


class Way(NamedTuple):
    """What joins the ranks."""

    rank: int
    size: int
    wrap: Callable[[Any], Any]  # a tape
    strategy: Any = None


def join(name: str) -> Way:
    """Joins the ranks."""
    if name == "tf_smddp":
        import tf_smddp as sdp

        sdp.init()
        return Way(sdp.rank(), sdp.size(), sdp.DistributedGradientTape)
    if name == "tf_smddp_rows":
        import tf_smddp as sdp

        sdp.init()
        return Way(sdp.rank(), sdp.size(), lambda t: sdp.DistributedGradientTape(t, sparse_as_dense=False))
    if name == "horovod":
        import horovod.tensorflow as hvd

        hvd.init()
        return Way(hvd.rank(), hvd.size(), hvd.DistributedGradientTape)
    if name == "multi_worker_mirrored":
        workers = os.environ["WORKERS"].split(",")
        rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
        about = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        os.environ["TF_CONFIG"] = json.dumps(about)
        return Way(rank, len(workers), lambda tape: tape, tf.distribute.MultiWorkerMirroredStrategy())
    return Way(0, 1, lambda tape: tape)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on synthetic batches, as fast as it goes.")
    ways = ["alone", "tf_smddp", "tf_smddp_rows", "horovod", "multi_worker_mirrored"]
    parser.add_argument("way", choices=ways)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="of one rank")
    parser.add_argument("--steps", type=int, required=True, help="in each block")
    parser.add_argument("--threads", type=int, required=True, help="that compute one of TensorFlow's ops")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    way = join(arguments.way)
    scope = way.strategy.scope() if way.strategy else tf.device("CPU:0")
    with scope:
        task = make_task(arguments.model, arguments.batch_size, seed=way.rank)
        optimizer = tf.keras.optimizers.SGD(0.001, momentum=0.9)
        optimizer.build(task.model.trainable_variables)
    loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_function(labels, task.model(images, training=True)))
        gradients = way.wrap(tape).gradient(loss, task.model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, task.model.trainable_variables))
        return loss

    @tf.function
    def run(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return way.strategy.run(step, (images, labels)) if way.strategy else step(images, labels)

    def train(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            loss = run(task.images, task.labels)
        if not float(loss) == float(loss):
            raise AssertionError("the loss is not a number (NaN)")
        return (time.perf_counter() - begin) / steps

    train(WARM_UP_STEPS)
    seconds = [train(arguments.steps) for _ in range(BLOCKS)]
    if way.rank == 0:
        with open(arguments.output, "w") as out:
            out.write(json.dumps({"seconds": seconds, "ranks": way.size}) + "\n")


if __name__ == "__main__":
    main()
