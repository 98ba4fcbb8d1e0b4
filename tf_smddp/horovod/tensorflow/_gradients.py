"""Horovod's tape and optimizer.

`gradient_predivide_factor` divides a mean in two steps, before the sum and after it; the mean is the same.
The engine divides once, in the precision in which it adds up.
"""

from __future__ import annotations

from typing import Any, Optional, Set

import tensorflow as tf

import tf_smddp as sdp
from tf_smddp import Compression, ReduceOp, global_process_set
from tf_smddp._autograph import not_converted
from tf_smddp._call_site import check_call_site
from tf_smddp._process_sets import communicator_of
from tf_smddp._reduce_gradients import reduce_gradients, source_label
from tf_smddp._start_weights import make_equal
from tf_smddp.horovod.tensorflow._arguments import op_of, set_of


def _check_predivide(factor: float, op: ReduceOp) -> None:
    if factor != 1.0 and op is not ReduceOp.AVERAGE:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = ReduceOp.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: sdp.ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> sdp.DistributedGradientTape:
    """As `tf_smddp.DistributedGradientTape`; sparse gradients are gathered unless `sparse_as_dense`.

    Raises:
        ValueError: `gradient_predivide_factor` is not 1, and `op` not Average.
    """
    reduce_op = op_of(None, op)
    _check_predivide(gradient_predivide_factor, reduce_op)
    return sdp.DistributedGradientTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=reduce_op,
        process_set=set_of(process_set),
    )


class PartialDistributedGradientTape:
    """A tape that reduces all gradients but those of some layers, which each rank has for itself.

    All else is the wrapped tape's.
    """

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: ReduceOp = ReduceOp.AVERAGE,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
        process_set: sdp.ProcessSet = global_process_set,
        local_layers: Any = None,
        scale_local_gradients: bool = True,
    ):
        """Wraps a tape.

        Args:
            gradtape: the tape to wrap.
            device_dense: no effect.
            device_sparse: no effect.
            compression: as in `DistributedGradientTape`, as the rest up to `process_set`.
            sparse_as_dense: likewise.
            op: likewise.
            gradient_predivide_factor: likewise.
            num_groups: no effect.
            groups: no effect.
            process_set: the ranks that take part.
            local_layers: a layer, or a list of them, whose gradients are not reduced.
            scale_local_gradients: whether these are divided by the number of ranks, so that their steps are
                as large as those of averages.
        """
        _check_predivide(gradient_predivide_factor, op_of(None, op))
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._op = op_of(None, op)
        self._process_set = process_set
        self._plain = gradtape
        self._divisor = process_set.size() if scale_local_gradients else 1
        layers = local_layers if isinstance(local_layers, (list, tuple, set)) else [local_layers]
        self._layers = [layer for layer in layers if layer is not None]
        self._sources: Set[int] = set()

    def register_local_source(self, source: Any) -> None:
        """Adds a variable whose gradient is not reduced."""
        self._sources.add(id(source))

    @not_converted
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None) -> Any:
        """As `tf.GradientTape.gradient`. Collective."""
        check_call_site("PartialDistributedGradientTape.gradient")
        own = self._sources | {id(v) for layer in self._layers for v in layer.trainable_weights}
        flat = tf.nest.flatten(sources)
        shared = [source for source in flat if id(source) not in own]
        if set_of(self._process_set) is None:
            make_equal(shared, "PartialDistributedGradientTape")
        gradients = self._plain.gradient(target, flat, output_gradients)
        reduced = iter(
            reduce_gradients(
                [gradient for source, gradient in zip(flat, gradients) if id(source) not in own],
                [source_label(source) for source in shared],
                self._compression,
                self._op,
                self._sparse_as_dense,
                "PartialDistributedGradientTape",
                communicator_of(set_of(self._process_set), "PartialDistributedGradientTape"),
            )
        )
        found = [
            self._scaled(gradient) if id(source) in own else next(reduced)
            for source, gradient in zip(flat, gradients)
        ]
        return tf.nest.pack_sequence_as(sources, found)

    def _scaled(self, gradient: Any) -> Any:
        return None if gradient is None else gradient / self._divisor

    def __enter__(self) -> PartialDistributedGradientTape:
        self._plain.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._plain.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        if name == "_plain":
            raise AttributeError(name)
        return getattr(self._plain, name)


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = ReduceOp.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: sdp.ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """As `tf_smddp.DistributedOptimizer`; with several passes, gradients are added up by default.

    With `backward_passes_per_step` more than 1, sparse gradients are made dense.

    Raises:
        ValueError: `gradient_predivide_factor` is not 1, and `op` not Average.
    """
    reduce_op = op_of(None, op)
    _check_predivide(gradient_predivide_factor, reduce_op)
    return sdp.DistributedOptimizer(
        optimizer,
        name,
        use_locking,
        compression=compression,
        sparse_as_dense=sparse_as_dense or backward_passes_per_step > 1,
        op=reduce_op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=set_of(process_set),
    )
