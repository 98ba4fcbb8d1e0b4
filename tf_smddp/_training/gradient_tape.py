"""DistributedGradientTape: a tf.GradientTape whose gradients are reduced over all ranks."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Optional, Type

import tensorflow as tf

from smddp import WORLD
from smddp.process_sets import ProcessSet, communicator_of
from smddp.requests import ReduceOp, resolve_reduce_op
from tf_smddp._base.arguments import warn_about_device_hints
from tf_smddp._collectives.compression import Compression, compressor_around_op
from tf_smddp._graphs.call_site import check_call_site
from tf_smddp._guards.callbacks_beside import warn_within_fit
from tf_smddp._guards.gradient_use import note_apart, note_tape
from tf_smddp._guards.loop_check import before_eager_reduction
from tf_smddp._guards.periodic_check import check
from tf_smddp._guards.start_weights import make_equal
from tf_smddp._training.reduce_gradients import reduce_gradients


class DistributedGradientTape(tf.GradientTape):
    """A `tf.GradientTape` whose `gradient` returns gradients that are reduced over all ranks.

        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        tape = sdp.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    It wraps the given tape, and is a context manager, too. Only `gradient` communicates. All other methods,
    such as `jacobian`, are those of the wrapped tape and stay local.
    """

    # As in `make_equal`.
    _broadcast_may_follow = False

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = True,
        op: Optional[ReduceOp] = ReduceOp.AVERAGE,
        *,
        process_set: Optional[ProcessSet] = None,
    ):
        """Wraps a tape.

        Args:
            gradtape: the tape to wrap; it may have recorded already.
            device_dense: not supported; anything but '' is ignored with a warning.
            device_sparse: not supported; anything but '' is ignored with a warning.
            compression: a member of `Compression`, as in `allreduce`; or your own
                compressor, which is applied before and after the reduction of each gradient.
            sparse_as_dense: whether sparse gradients (`tf.IndexedSlices`, from embeddings) become dense
                tensors. If not, the rows of all ranks are gathered (for SUM, or for AVERAGE, which divides
                them by the number of ranks), which is better if a step uses few of many rows. True needs
                memory for one table; False for the rows of all ranks, which grow with the number of ranks.
                With True, large tables travel between hosts as rows, too, where all ranks together use less
                than about half as many rows as the table has; this needs memory for these rows.
            op: how to combine the gradients; None is AVERAGE.
            process_set: the ranks that take part; None is all. Only with all, ranks compare their weights
                before the first gradients.

        Raises:
            TypeError: `gradtape` is not a `tf.GradientTape`, or is distributed already; or `compression` or
                `op` is of a wrong type.
        """
        # There is no super().__init__(), because the wrapped tape has the state; see __getattr__.
        if not isinstance(gradtape, tf.GradientTape):
            raise TypeError(f"DistributedGradientTape wraps a tf.GradientTape, but got {gradtape!r}.")
        if isinstance(gradtape, DistributedGradientTape):
            raise TypeError(
                "DistributedGradientTape wraps a plain tf.GradientTape, but got a DistributedGradientTape: "
                "gradients would be reduced twice. Wrap the tape once."
            )
        compressor_around_op(compression)
        warn_about_device_hints("DistributedGradientTape", device_dense, device_sparse)
        self._wrapped = gradtape
        self._compression = compression
        self._sparse_as_dense = bool(sparse_as_dense)
        self._reduce_op = resolve_reduce_op(op)
        self._process_set = process_set

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Like `tf.GradientTape.gradient`, with every gradient reduced over all ranks.

        Collective: every rank must call this, and the same gradients must be None, and the same ones sparse,
        on all ranks. Gradients that are None stay None and do not take part.

        Args:
            target: as in `tf.GradientTape.gradient`.
            sources: as there: a variable or tensor, or a nested structure of them; one may appear more than
                once.
            output_gradients: as there.
            unconnected_gradients: as there.

        Returns:
            Reduced gradients in the structure of `sources`, each with the shape and type of its source. They
            are dense, except for sparse gradients with `sparse_as_dense=False`.

        Raises:
            ValueError: a gradient is sparse, `sparse_as_dense` is False, and the op neither SUM nor AVERAGE;
                or this rank is not in the process set.
        """
        check_call_site("DistributedGradientTape.gradient")
        warn_within_fit()
        communicator = communicator_of(self._process_set, "DistributedGradientTape")
        if communicator == WORLD:
            make_equal(
                tf.nest.flatten(sources),
                "DistributedGradientTape",
                broadcast_may_follow=self._broadcast_may_follow,
            )
        else:
            note_apart(tf.nest.flatten(sources))
        local = self._wrapped.gradient(
            target, sources, output_gradients=output_gradients, unconnected_gradients=unconnected_gradients
        )
        if communicator == WORLD:
            before_eager_reduction()
            check(tf.nest.flatten(sources), tf.nest.flatten(local), "DistributedGradientTape")
        reduced = reduce_gradients(
            tf.nest.flatten(local),
            tf.nest.flatten(sources),
            self._compression,
            self._reduce_op,
            self._sparse_as_dense,
            "DistributedGradientTape",
            communicator,
        )
        note_tape(tf.nest.flatten(sources), reduced)
        return tf.nest.pack_sequence_as(local, reduced)

    # The other methods of tf.GradientTape call the wrapped tape. They must be written out, since Python finds
    # them in the base class before it calls __getattr__.

    def __enter__(self) -> DistributedGradientTape:
        self._wrapped.__enter__()
        return self

    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._wrapped.__exit__(exc_type, exc_value, traceback)

    def watch(self, tensor: Any) -> None:
        """As `tf.GradientTape.watch`."""
        self._wrapped.watch(tensor)

    def watched_variables(self) -> Any:
        """As `tf.GradientTape.watched_variables`."""
        return self._wrapped.watched_variables()

    def stop_recording(self) -> Any:
        """As `tf.GradientTape.stop_recording`."""
        return self._wrapped.stop_recording()

    def reset(self) -> None:
        """As `tf.GradientTape.reset`."""
        self._wrapped.reset()

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf.GradientTape.jacobian`: this rank's own, and not reduced."""
        return self._wrapped.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As `tf.GradientTape.batch_jacobian`: this rank's own, and not reduced."""
        return self._wrapped.batch_jacobian(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # All other attributes of the tape: state that TensorFlow's code reads, attributes of a user's
        # subclass.
        if name == "_wrapped":  # Not set yet: __init__ failed, or copy/pickle makes an empty object.
            raise AttributeError(name)
        return getattr(self._wrapped, name)
