"""The optimizers of tf.compat.v1.train.

Gradients are reduced in `compute_gradients`, and so in `minimize`; `apply_gradients` applies the gradients
that it is given. So scripts can clip in between, and clip the gradients of the whole batch.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

from tf_smddp._training.optimizers.keras2 import apply_if
from tf_smddp._training.optimizers.reclassing import Distributed, state_of


class V1(Distributed):
    """The mixin for `tf.compat.v1.train.Optimizer`."""

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Tuple[Any, Any]]:
        """As the plain optimizer's, and reduced over all ranks. Collective."""
        local = super().compute_gradients(*args, **kwargs)  # type: ignore[misc]
        return state_of(self).reduce(local, self)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's; with several backward passes per step, only in the last one."""
        plain_apply = super().apply_gradients  # type: ignore[misc]
        is_step = state_of(self).take_is_step()
        if is_step is None:
            return plain_apply(grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)
        with tf.init_scope():
            self._create_slots([variable for gradient, variable in pairs if gradient is not None])  # type: ignore[attr-defined]
        return apply_if(is_step, lambda: plain_apply(pairs, *args, **kwargs))
