"""Horovod's tape and optimizer.

`gradient_predivide_factor` divides a mean in two steps, before the sum and after it; the mean is the same.
The engine divides once, in the precision in which it adds up.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

import tf_smddp as sdp
from smddp import WORLD
from smddp.process_sets import communicator_of
from tf_smddp import Compression, ReduceOp, global_process_set
from tf_smddp._graphs.call_site import check_call_site
from tf_smddp._guards.gradient_use import note_apart, note_tape
from tf_smddp._guards.start_weights import make_equal
from tf_smddp._training.reduce_gradients import reduce_gradients
from tf_smddp.horovod.tensorflow._arguments import op_of, set_of
from tf_smddp.horovod.tensorflow._local import LocalVariables, divided, keep_local


def _check_predivide(factor: float, op: ReduceOp) -> None:
    if factor != 1.0 and op is not ReduceOp.AVERAGE:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


class PartialDistributedGradientTape(sdp.DistributedGradientTape):
    """A tape that reduces all gradients but those of some layers, which each rank has for itself.

    All else is the wrapped tape's.
    """

    _broadcast_may_follow = True  # as in Horovod's own loop

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
            process_set: the ranks that take part; the others get their own gradients.
            local_layers: a layer, or a list of them, whose gradients are not reduced.
            scale_local_gradients: whether these are divided by the number of ranks, so that their steps are
                as large as those of averages.

        Raises:
            ValueError: `gradient_predivide_factor` is not 1, and `op` not Average.
        """
        reduce_op = op_of(None, op)
        _check_predivide(gradient_predivide_factor, reduce_op)
        super().__init__(
            gradtape,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            op=reduce_op,
            process_set=set_of(process_set),
        )
        self._is_member = process_set.included()
        self._divisor = process_set.size() if scale_local_gradients else 1
        self._local = LocalVariables(local_layers)

    def register_local_source(self, source: Any) -> None:
        """Adds a variable whose gradient is not reduced."""
        self._local.add(source)

    def get_local_and_global_gradients(self, target: Any, sources: Any, output_gradients: Any = None) -> Any:
        """Returns two lists of (variable, gradient): of local variables, and of the others. Collective."""
        flat = tf.nest.flatten(sources)
        pairs = list(zip(flat, self.gradient(target, flat, output_gradients)))
        local = [pair for pair in pairs if pair[0] in self._local]
        return local, [pair for pair in pairs if pair[0] not in self._local]

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """As `tf.GradientTape.gradient`, reduced but for local variables. Collective."""
        if not self._is_member:
            note_apart(tf.nest.flatten(sources))
            return self._wrapped.gradient(target, sources, output_gradients, unconnected_gradients)
        flat = tf.nest.flatten(sources)
        shared = [source for source in flat if source not in self._local]
        if len(shared) == len(flat):
            return super().gradient(target, sources, output_gradients, unconnected_gradients)
        caller = "PartialDistributedGradientTape"
        check_call_site(f"{caller}.gradient")
        communicator = communicator_of(self._process_set, caller)
        if communicator == WORLD:
            make_equal(shared, caller, broadcast_may_follow=True)
            note_apart([source for source in flat if source in self._local])
        else:
            note_apart(flat)
        gradients = self._wrapped.gradient(target, flat, output_gradients, unconnected_gradients)
        reduced = iter(
            reduce_gradients(
                [gradient for source, gradient in zip(flat, gradients) if source not in self._local],
                shared,
                self._compression,
                self._reduce_op,
                self._sparse_as_dense,
                caller,
                communicator,
            )
        )
        pairs = [pair for pair in zip(flat, gradients) if pair[0] not in self._local]
        note_tape([source for source, _ in pairs], [gradient for _, gradient in pairs])
        found = [
            divided(gradient, self._divisor) if source in self._local else next(reduced)
            for source, gradient in zip(flat, gradients)
        ]
        return tf.nest.pack_sequence_as(sources, found)


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
) -> PartialDistributedGradientTape:
    """As `tf_smddp.DistributedGradientTape`; sparse gradients are gathered unless `sparse_as_dense`.

    Ranks that are not in the process set get their own gradients. `register_local_source` excludes a
    variable.

    Raises:
        ValueError: `gradient_predivide_factor` is not 1, and `op` not Average.
    """
    return PartialDistributedGradientTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


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

    Ranks that are not in the process set apply their own gradients. The optimizer's `register_local_var`
    excludes a variable, whose gradient is divided by the number of ranks if `scale_local_gradients`.

    With `backward_passes_per_step` more than 1, sparse gradients are made dense.

    Raises:
        ValueError: `gradient_predivide_factor` is not 1, and `op` not Average.
    """
    reduce_op = op_of(None, op)
    _check_predivide(gradient_predivide_factor, reduce_op)
    distributed = sdp.DistributedOptimizer(
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
    keep_local(distributed, process_set, scale_local_gradients)
    return distributed
