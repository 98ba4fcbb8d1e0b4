"""Contestant and Trial: the interface between a Python implementation of allreduce and measure.py."""

from __future__ import annotations

import abc
from typing import Callable, List, Optional, Sequence

import numpy as np


class Trial(abc.ABC):
    """One measurement: sums some tensors over all ranks, a number of times."""

    operations: int = 1  # allreduces, or whole gradient sets, in one run()
    baseline: Optional[Callable[[], None]] = None  # does all that run() does except the reductions

    @abc.abstractmethod
    def reduce(self, arrays: List[np.ndarray]) -> List[np.ndarray]:
        """Returns the sums over all ranks of float32 arrays in this trial's shapes. Collective."""

    @abc.abstractmethod
    def run(self) -> None:
        """Does the work that is measured, and returns when it is done. Collective."""


class Contestant(abc.ABC):
    """One rank of an implementation that can allreduce."""

    rank: int
    size: int

    @abc.abstractmethod
    def sweep_trial(self, count: int) -> Trial:
        """Returns the trial for one tensor of `count` elements."""

    @abc.abstractmethod
    def set_trial(self, shapes: Sequence[Sequence[int]]) -> Trial:
        """Returns the trial for the gradients of one step."""

    @abc.abstractmethod
    def sum_vector(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum over all ranks of a float64 or float32 vector of `size` elements. Collective."""

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.sum_vector(np.zeros(self.size, np.float32))

    def slowest(self, seconds: float) -> float:
        """Returns the largest of all ranks' times. Collective."""
        values = np.zeros(self.size, np.float32)
        values[self.rank] = seconds
        return float(self.sum_vector(values).max())

    def close(self) -> None:
        """Leaves the job. Collective."""
        self.barrier()


def chain_length(count: int, longest: Optional[int] = None) -> int:
    """Returns how many allreduces of `count` elements one run of a sweep's trial makes, one after the other.

    Each needs the result of the one before. The longer the chain, the less the cost of starting a graph
    counts.
    """
    length = 16 if count <= 1 << 16 else 8 if count <= 1 << 20 else 3
    return min(length, longest) if longest else length
