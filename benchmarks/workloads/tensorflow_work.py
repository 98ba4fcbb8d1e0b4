"""Trials for implementations that reduce inside a tf.function: the op, Horovod, MultiWorkerMirroredStrategy.

The gradients are computed by the function, as in a training step: a constant could be folded away, and an
argument could not be reduced in place. The baseline is the same function without the reductions. In a chain,
each allreduce needs the result of the one before, so they cannot overlap.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from workloads.contestant import Contestant, Trial, chain_length

# A function that sums each tensor of a list over all ranks inside a tf.function; the string makes names
# unique.
Reduce = Callable[[List[tf.Tensor], str], List[tf.Tensor]]
# A function that turns a function of tensors into one that can be called, and runs on every rank.
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class GraphContestant(Contestant):
    """A rank whose reductions are ops in a graph."""

    def __init__(self, rank: int, size: int, reduce: Reduce, wrap: Optional[Wrap] = None) -> None:
        self.rank, self.size = rank, size
        self._reduce = reduce
        self._wrap: Wrap = wrap or (lambda function: tf.function(function, autograph=False))
        self._sum = self._wrap(lambda values: reduce([values + 0.0], "sum")[0])

    def sweep_trial(self, count: int) -> Trial:
        return _SweepTrial(self, count)

    def set_trial(self, shapes: Sequence[Sequence[int]]) -> Trial:
        return _SetTrial(self, shapes)

    def sum_vector(self, values: np.ndarray) -> np.ndarray:
        return self._sum(tf.constant(values, tf.float32)).numpy()


class _GraphTrial(Trial):
    def __init__(self, contestant: GraphContestant, label: str) -> None:
        # The zero is an argument, so that TensorFlow does not fold the sum.
        reduce_all = contestant._wrap(
            lambda zero, *tensors: contestant._reduce(
                [tensor + zero for tensor in tensors], f"{label}.verify"
            )
        )
        self._reduce_all = reduce_all

    def reduce(self, arrays: List[np.ndarray]) -> List[np.ndarray]:
        return [result.numpy() for result in self._reduce_all(tf.constant(0.0), *map(tf.constant, arrays))]


class _SweepTrial(_GraphTrial):
    def __init__(self, contestant: GraphContestant, count: int) -> None:
        super().__init__(contestant, f"sweep{count}")
        self.operations = chain_length(count)
        self._tensor, self._zero = tf.zeros([count]), tf.constant(0.0)

        def chain(length: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
            def function(tensor: tf.Tensor, zero: tf.Tensor) -> tf.Tensor:
                tensor = tensor + zero
                for i in range(length):
                    tensor = contestant._reduce([tensor], f"sweep{count}.{i}")[0]
                return tensor

            return function

        self._run, self._baseline = (contestant._wrap(chain(length)) for length in (self.operations, 0))

    def run(self) -> None:
        self._run(self._tensor, self._zero)

    def baseline(self) -> None:
        self._baseline(self._tensor, self._zero)


class _SetTrial(_GraphTrial):
    def __init__(self, contestant: GraphContestant, shapes: Sequence[Sequence[int]]) -> None:
        super().__init__(contestant, "set")
        self._value = tf.constant(0.0)

        def gradients(value: tf.Tensor) -> List[tf.Tensor]:
            # Each gradient has another value, or TensorFlow would compute those of the same shape only once.
            return [tf.fill(shape, value + i) for i, shape in enumerate(shapes)]

        self._run = contestant._wrap(lambda value: contestant._reduce(gradients(value), "set"))
        self._baseline = contestant._wrap(gradients)

    def run(self) -> None:
        self._run(self._value)

    def baseline(self) -> None:
        self._baseline(self._value)
