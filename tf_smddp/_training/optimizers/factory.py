"""DistributedOptimizer: checks its arguments and chooses the implementation for the optimizer's family."""

from __future__ import annotations

import functools
from typing import Any, Optional

import tensorflow as tf

from smddp import ReduceOp
from smddp.process_sets import ProcessSet
from tf_smddp._base.arguments import warn_about_device_hints
from tf_smddp._collectives.compression import Compression
from tf_smddp._guards.callbacks_beside import watch_fits
from tf_smddp._training.optimizers import keras2, keras3, sharded_state, v1
from tf_smddp._training.optimizers.accumulation import Accumulation
from tf_smddp._training.optimizers.arguments import check_bucket_cap, check_passes, make_reduction, reduces
from tf_smddp._training.optimizers.reclassing import has_ancestor, make_distributed


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = True,
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    bucket_cap_mb: float = 25,
    *,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = True,
    process_set: Optional[ProcessSet] = None,
    shard_state: bool = False,
) -> Any:
    """Makes an optimizer reduce its gradients over all ranks before it applies them.

        optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.Adam(0.001 * sdp.size()))
        model.compile(optimizer, "mse")

    The function changes the given optimizer and returns it. The optimizer keeps its state, is still an
    instance of its class, and saves and loads as a plain one. Its steps are collective: every rank must take
    the same ones.

    Gradients are reduced once, in `model.fit`, `minimize`, `apply_gradients` or Keras 3's `apply`; with
    optimizers of `tf.compat.v1.train` in `compute_gradients`, and so in `minimize`. So don't use it together
    with `DistributedGradientTape`. Clipping, weight decay, moving averages, and the check for infinities of a
    LossScaleOptimizer inside or outside of this optimizer come after the reduction.

    Args:
        optimizer: of Keras 3, of Keras 2 (`tf.keras.optimizers` and its `legacy`, up to TensorFlow 2.15), of
            `tf_keras`, or of `tf.compat.v1.train`; a LossScaleOptimizer or one that is inside one.
        name: the name of the reductions' nodes in graphs; None is "DistributedOptimizer". It does not rename
            variables.
        use_locking: whether an optimizer of `tf.compat.v1.train` locks the variables while it updates them;
            other optimizers ignore it.
        device_dense: not supported; anything but '' is ignored with a warning.
        device_sparse: not supported; anything but '' is ignored with a warning.
        compression: as in `DistributedGradientTape`.
        sparse_as_dense: as in `DistributedGradientTape`.
        op: how to combine the gradients; None is AVERAGE.
        bucket_cap_mb: checked, but not used otherwise. The size of a batch of reductions is a setting of the
            job, `SMDDP_BUCKET_CAP_BYTES`.
        backward_passes_per_step: how many gradients each rank sums before their mean is reduced and applied,
            so that this many batches count as one large batch. Not for Keras 3, which has
            `gradient_accumulation_steps`.
        average_aggregated_gradients: with several passes, whether their mean counts, or their sum.
        process_set: the ranks that take part; None is all.
        shard_state: whether each of n ranks keeps 1/n of the optimizer's state, and does 1/n of the update
            (stage 1 of ZeRO, Rajbhandari et al. 2020). For optimizers of Keras that have no state yet. Then
            saving the optimizer is collective, and checkpoints have the whole state.

    Returns:
        The optimizer.

    Raises:
        TypeError: `optimizer` is not an optimizer, or another argument is of a wrong type; or `shard_state`
            is not for an optimizer of this kind.
        ValueError: the optimizer is distributed already; `bucket_cap_mb` * 1024 * 1024 is not a positive
            multiple of 128; `backward_passes_per_step` is not positive, or more than 1 with Keras 3 or
            `sparse_as_dense=False`; or the optimizer has state already, and `shard_state` comes too late.
    """
    warn_about_device_hints("DistributedOptimizer", device_dense, device_sparse)
    check_bucket_cap(bucket_cap_mb)
    passes = check_passes(backward_passes_per_step, sparse_as_dense)
    reduction = make_reduction(name, compression, sparse_as_dense, op, process_set)
    watch_fits(type(optimizer))
    if has_ancestor(optimizer, "BaseOptimizer"):
        if passes > 1:
            raise ValueError(
                f"backward_passes_per_step={passes} is not for optimizers of Keras 3, which accumulate "
                f"themselves: pass gradient_accumulation_steps={passes} to {type(optimizer).__name__}."
            )
        inner = getattr(optimizer, "inner_optimizer", None)
        _check_not_distributed(optimizer, inner)
        if shard_state:
            inner = optimizer if inner is None else inner
            keras3.distribute(inner, sharded_state.shard(inner, reduction), sharded_state.Keras3)
        else:
            keras3.distribute(optimizer, reduction)
        return optimizer
    accumulation = (
        functools.partial(Accumulation, passes, average_aggregated_gradients) if passes > 1 else None
    )
    state = keras2.State(reduction, accumulation)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        _check_not_distributed(optimizer)
        _check_not_sharded(optimizer, shard_state)
        make_distributed(optimizer, v1.V1, state)
        optimizer._use_locking = optimizer._use_locking or bool(use_locking)
        return optimizer
    inner = optimizer.inner_optimizer if has_ancestor(optimizer, "BaseLossScaleOptimizer") else optimizer
    if has_ancestor(inner, "OptimizerV2"):
        _check_not_sharded(inner, shard_state)
        mixin: type = keras2.Legacy
    elif has_ancestor(inner, "_BaseOptimizer") and shard_state:
        mixin, state = sharded_state.Keras2, keras2.State(sharded_state.shard(inner, reduction), accumulation)
    elif has_ancestor(inner, "_BaseOptimizer"):
        mixin = keras2.Keras2
    else:
        raise TypeError(_not_an_optimizer(optimizer))
    _check_not_distributed(inner)
    make_distributed(inner, mixin, state)
    return optimizer


def _check_not_distributed(*optimizers: Any) -> None:
    for optimizer in optimizers:
        if reduces(optimizer):
            raise ValueError(
                f"DistributedOptimizer got {optimizer!r}, which is distributed already, by it or by "
                "LocalSGD. Wrap each optimizer once."
            )


def _check_not_sharded(optimizer: Any, shard_state: bool) -> None:
    if shard_state:
        raise TypeError(
            "DistributedOptimizer: shard_state=True is for optimizers of Keras 3, of tf_keras, and of "
            f"tf.keras.optimizers, but got {optimizer!r}. Use the optimizer of this name from there."
        )


def _not_an_optimizer(value: Any) -> str:
    remedy = (
        "Pass an optimizer of tf.keras, tf.keras.optimizers.legacy, keras, tf_keras or tf.compat.v1.train."
    )
    if isinstance(value, (str, dict)):
        remedy = f"Pass the optimizer itself: tf.keras.optimizers.get({value!r})."
    elif isinstance(value, type):
        remedy = f"That is a class. Pass an object: {value.__name__}(...)."
    return f"DistributedOptimizer wraps an optimizer, but got {value!r}. {remedy}"
