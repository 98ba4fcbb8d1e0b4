"""A sharded update beside one that is not, in turn, with the weights of BERT-base.

    smddprun -np 2 python benchmarks/sharded_state.py

Gradients are made in each step; nothing else is computed. A rank has one thread. It takes 5 GB a rank.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import time
from typing import Any, Callable, Tuple

import tensorflow as tf

import tf_smddp as sdp

SHAPES = pathlib.Path(__file__).resolve().parent / "gradient_sets" / "bert_base.json"


def make_step(kind: str, shard_state: bool) -> Tuple[Callable[[tf.Tensor], None], int]:
    """Returns a step, and the number of elements of this rank's state."""
    shapes = json.loads(SHAPES.read_text())["shapes"]
    variables = [tf.Variable(tf.fill(shape, 0.01), name=f"weight_{i}") for i, shape in enumerate(shapes)]
    plain = getattr(tf.keras.optimizers, kind)(1e-4)
    optimizer: Any = sdp.DistributedOptimizer(plain, shard_state=shard_state)
    optimizer.build(variables)

    @tf.function
    def step(value: tf.Tensor) -> None:
        gradients = [tf.fill(tf.shape(variable), value) for variable in variables]
        optimizer.apply_gradients(list(zip(gradients, variables)))

    slots = optimizer.variables
    return step, sum(int(tf.size(slot)) for slot in (slots() if callable(slots) else slots))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure sharded updates.")
    parser.add_argument("--optimizer", default="Adam", help="of Keras")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    steps = arguments.steps
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sdp.init()
    made = {
        name: make_step(arguments.optimizer, shard_state)
        for name, shard_state in (("whole", False), ("sharded", True))
    }
    seconds = {name: [] for name in made}  # type: ignore[var-annotated]
    for number in range(steps + 2):
        for name, (step, _) in made.items():
            sdp.barrier()
            begin = time.perf_counter()
            step(tf.constant(1e-3 * number))
            if number >= 2:
                seconds[name].append(time.perf_counter() - begin)
    if sdp.rank() == 0:
        for name, (_, count) in made.items():
            median = statistics.median(seconds[name])
            print(f"{name} state: a step takes {1e3 * median:.0f} ms; a rank has {count / 1e6:.1f} M numbers")
        ratio = statistics.median(b / a for a, b in zip(seconds["whole"], seconds["sharded"]))
        print(f"sharded / whole, median of {steps} pairs: {ratio:.2f}")


if __name__ == "__main__":
    main()
