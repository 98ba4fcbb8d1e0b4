"""Trains a model on one rank: training_worker.py --model=… --output=FILE; run.py starts it.

Rank 0 writes one JSON line: the time of each step on each rank, and the cost of the collectives according to
stats(). The steps are without reductions ("apart"), with an allreduce of one number, for which each rank
waits before it updates its weights ("in_step"), and with the gradients' reductions ("together").
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Dict, List

import tensorflow as tf
from training.models import make_task

WARM_UP_STEPS = 3
BLOCK_STEPS = 5


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on synthetic batches, and time each step.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--plugin", action="store_true", help="import tf_smddp and call init()")
    parser.add_argument(
        "--reduce",
        action="store_true",
        help="in two of three blocks of steps, reduce: one number, and the gradients",
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="threads in each of TensorFlow's pools; 0: its default"
    )
    parser.add_argument("--output", required=True)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    sdp: Any = None
    if arguments.plugin:
        import tf_smddp as sdp

        sdp.init()
    task = make_task(arguments.model, arguments.batch_size, seed=sdp.rank() if sdp else 0)
    loss_function = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.SGD(0.001, momentum=0.9)
    optimizer.build(task.model.trainable_variables)

    def when_all_have_gradients(gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        with tf.control_dependencies(gradients):
            all_ranks = sdp.allreduce(tf.zeros([]))
        with tf.control_dependencies([all_ranks]):
            return [tf.identity(gradient) for gradient in gradients]

    def make_step(work: str) -> Any:
        @tf.function
        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = loss_function(labels, task.model(images, training=True))
            if work == "together":
                tape = sdp.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, task.model.trainable_variables)
            if work == "in_step":
                gradients = when_all_have_gradients(gradients)
            optimizer.apply_gradients(zip(gradients, task.model.trainable_variables))
            return loss

        return step

    def train(step: Any, steps: int) -> List[float]:
        seconds = []
        for _ in range(steps):
            begin = time.perf_counter()
            loss = float(step(task.images, task.labels))
            seconds.append(time.perf_counter() - begin)
        if not loss == loss:
            raise AssertionError("the loss is not a number (NaN)")
        return seconds

    # The works alternate, so that other work on the machine disturbs them equally.
    names = ("apart", "in_step", "together") if arguments.reduce else ("apart",)
    works = {name: make_step(name) for name in names}
    for step in works.values():
        train(step, WARM_UP_STEPS)
    if sdp:
        sdp.stats(reset=True)
    seconds: Dict[str, List[float]] = {name: [] for name in works}
    while len(seconds["apart"]) < arguments.steps:
        for name, step in works.items():
            if sdp:
                sdp.barrier()
            seconds[name] += train(step, min(BLOCK_STEPS, arguments.steps - len(seconds[name])))
    record: Dict[str, Any] = {name: [own] for name, own in seconds.items()}
    if sdp:
        record = {name: sdp.allgather_object(own) for name, own in seconds.items()}
        record["allreduce"] = sdp.stats()["collectives"]["allreduce"]
    if arguments.reduce:
        sdp.broadcast_variables(task.model.variables, root_rank=0)
        optimizer_variables = optimizer.variables
        if callable(optimizer_variables):
            optimizer_variables = optimizer_variables()
        sdp.broadcast_variables(optimizer_variables, root_rank=0)
        train(works["together"], 2)
        if not weights_are_equal(sdp, task.model):
            raise AssertionError("the ranks' weights differ after steps that started from equal weights")
    if not sdp or sdp.rank() == 0:
        with open(arguments.output, "w") as out:
            out.write(json.dumps(record) + "\n")


def weights_are_equal(sdp: Any, model: tf.keras.Model) -> bool:
    """Returns whether all ranks have the same trained weights. Collective: every rank must call this."""
    sums = [float(tf.reduce_sum(tf.cast(weight, tf.float64))) for weight in model.trainable_variables]
    return all(found == sums for found in sdp.allgather_object(sums))


if __name__ == "__main__":
    main()
