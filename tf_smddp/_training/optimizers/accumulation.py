"""Adding gradients up over several backward passes, and reducing only the sum.

The number of passes is counted in a variable, which every rank advances alike; so the condition here, with
the collective under it, is the same on all ranks.

Each list of variables counts for itself and has sums of its own, also for a variable that is in several
lists: two losses that share some variables, or two parts of a model.

Variables are read before the condition and written after it, so that the branch with the collective waits
for none of them (and would be in program order even without program_order.py).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_smddp._training.optimizers.arguments import Reduction


class Accumulation:
    """The gradients that one optimizer has added up so far.

    Its variables are not part of the optimizer's state: a checkpoint is that of the plain optimizer, and what
    has been added up since the last step is lost with the process. In a v1 graph they are local variables.
    """

    def __init__(self, passes: int, mean: bool = True):
        self._passes = passes
        self._divisor = passes if mean else 1
        self._counters: Dict[Tuple[Any, ...], tf.Variable] = {}
        self._sums: Dict[Tuple[Any, ...], tf.Variable] = {}  # by the list and the place in it
        self._is_step: Optional[tf.Tensor] = None

    def add(self, gradients: Sequence[Any], variables: Sequence[Any], reduce: Reduction) -> List[Any]:
        """Adds the gradients of one pass.

        Collective in every `passes`-th call for the same list of variables.

        Returns:
            In every `passes`-th call the reduced mean (or sum) over the passes, else zeros; None where a
            gradient is.
        """
        key = tuple(variable.ref() for variable in variables)
        # A gradient that is None counts as zero if it was not None in an earlier pass.
        gradients = [
            tf.zeros_like(self._sums[(*key, i)]) if gradient is None and (*key, i) in self._sums else gradient
            for i, gradient in enumerate(gradients)
        ]
        present = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not present:
            return list(gradients)
        count = self._counter(key).assign_add(1)
        self._is_step = tf.equal(tf.math.floormod(count, self._passes), 0)
        sums = [self._sum((*key, i), variables[i].shape, gradients[i].dtype) for i in present]
        totals = [total + tf.convert_to_tensor(gradients[i]) for total, i in zip(sums, present)]

        def reduced() -> List[tf.Tensor]:
            means: List[Any] = [None] * len(gradients)  # the ranks compare which ones are None
            for i, total in zip(present, totals):
                means[i] = total / tf.cast(self._divisor, total.dtype)
            found = reduce(means, variables)
            return [found[i] for i in present]

        def zeros() -> List[tf.Tensor]:
            return [tf.zeros_like(reduce.like(total, variables[i])) for total, i in zip(totals, present)]

        results = tf.cond(self._is_step, reduced, zeros)
        # A v1 graph's cond returns the only element of a list, and runs nothing that no result needs.
        results = results if isinstance(results, (list, tuple)) else [results]
        with tf.control_dependencies(results):
            kept = [
                variable.assign(tf.where(self._is_step, tf.zeros_like(total), total))
                for variable, total in zip(sums, totals)
            ]
        with tf.control_dependencies(kept):
            results = [tf.identity(result) for result in results]
        complete: List[Any] = [None] * len(gradients)
        for i, result in zip(present, results):
            complete[i] = result
        return complete

    def take_is_step(self) -> Optional[tf.Tensor]:
        """Whether what the last `add` returned is to be applied: a bool scalar.

        None if nothing was added since the last call.
        """
        is_step, self._is_step = self._is_step, None
        return is_step

    def _counter(self, key: Tuple[Any, ...]) -> tf.Variable:
        if key not in self._counters:
            self._counters[key] = _local_variable([], tf.int64)
        return self._counters[key]

    def _sum(self, key: Tuple[Any, ...], shape: Any, dtype: tf.DType) -> tf.Variable:
        if key not in self._sums:
            self._sums[key] = _local_variable(shape, dtype)
        return self._sums[key]


def _local_variable(shape: Any, dtype: tf.DType) -> tf.Variable:
    with tf.init_scope():
        if tf.compat.v1.executing_eagerly_outside_functions():
            return tf.Variable(tf.zeros(shape, dtype), trainable=False)
        return tf.compat.v1.Variable(
            tf.zeros(shape, dtype),
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        )
