"""Trains a model as a script would: whole_worker.py WAY --model=… --output=FILE; run.py starts it.

WAY is what joins the ranks: alone (nothing), tf_smddp, tf_smddp_rows (likewise, but rows of sparse gradients
are gathered), tf_smddp_strategy, horovod or multi_worker_mirrored. Each rank adds the line that
training/blocks.py describes. whole_torch_worker.py is its counterpart for torch.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, NamedTuple

import tensorflow as tf
from training.blocks import measure, parse_arguments
from training.models import make_task

WAYS = ("alone", "tf_smddp", "tf_smddp_rows", "tf_smddp_strategy", "horovod", "multi_worker_mirrored")


class Way(NamedTuple):
    """A way to join the ranks."""

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
    if name == "tf_smddp_strategy":
        import tf_smddp as sdp

        strategy = sdp.distribute.Strategy()
        return Way(sdp.rank(), sdp.size(), lambda tape: tape, strategy)
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
    arguments = parse_arguments(WAYS)
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
        for _ in range(steps):
            loss = run(task.images, task.labels)
        return float(loss)

    measure(train, arguments, way.rank, way.size, f"TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main()
