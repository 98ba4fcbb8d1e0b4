"""allreduce and grouped_allreduce: combine tensors over all ranks."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from smddp.process_sets import ProcessSet, communicator_of
from smddp.requests import ReduceOp, resolve_reduce_op
from tf_smddp._base.arguments import check_dtype, to_tensor
from tf_smddp._collectives import op_gradients
from tf_smddp._collectives.compression import Compression, compressor_around_op, hint_of
from tf_smddp._collectives.scaling import NONE, Scaling, scaling
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._graphs.call_site import check_call_site
from tf_smddp._guards import gradient_use


def allreduce(
    tensor: Any = None,
    param_index: int = 0,
    num_params: int = 1,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    *,
    grad: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Optional[ProcessSet] = None,
) -> tf.Tensor:
    """Combines one tensor of a group over all ranks; every rank gets the same result, to the bit.

    Collective: every rank must call this, for the same groups in the same order. A group is a set of
    `num_params` tensors that belong together, such as the gradients of one step; its tensors may come in any
    order and are reduced at once. In a `tf.function` the result must be used, else TensorFlow prunes the op
    on this rank. Eager execution waits for each result, so there the order within a group must be the same on
    all ranks too, and `DistributedGradientTape`, which hands over a group at once, is faster.

    It can be differentiated for SUM and AVERAGE: the gradient is reduced in the same way, factors included.

    Args:
        tensor: what to reduce: a tensor or something that becomes one, of any shape, the same on all ranks,
            and of a floating, complex or integer type, or bool. `tf.IndexedSlices` are made dense first.
        param_index: which tensor of the group this is, 0 <= param_index < num_params.
        num_params: how many tensors the group has; by default the tensor stands alone.
        compression: one of `Compression`'s, the same on all ranks: in which format sums and averages of
            float32 tensors cross between hosts, or between GPUs; on one host of CPUs it changes no value. Or
            your own compressor, which is applied around the op.
        op: how to combine; None is AVERAGE. Not all are defined for bool and complex types, see `ReduceOp`.
        name: a name for error messages and for the node, the same on all ranks, which compare it. In a v1
            graph tensors meet by it; there the default is the node's name.
        grad: another name for `tensor`.
        prescale_factor: every rank's tensor is multiplied by it first; only floating and complex types. Like
            the other one, it is part of the reduction and costs next to nothing.
        postscale_factor: the result is multiplied by it.
        process_set: the ranks that take part; None is all.

    Returns:
        A dense tensor of the same shape and type.

    Raises:
        RuntimeError: before `init`, or in a function that tf.data runs.
        TypeError: an argument is missing or of a wrong type, or the tensor's type is not supported.
        ValueError: `param_index` is out of range, `op` or a factor is not defined for the type, a factor is
            not finite, `tf.IndexedSlices` have no `dense_shape`, or this rank is not in `process_set`.
        tf.errors.InternalError, tf.errors.FailedPreconditionError: the ranks disagree, or one is gone;
            the text says which, and what to do.
    """
    check_call_site("allreduce")
    if (tensor is None) == (grad is None):
        raise TypeError("allreduce() takes one tensor: give either `tensor` or its other name `grad`.")
    param_index, num_params = _check_position(param_index, num_params)
    reduce_op = resolve_reduce_op(op)
    factors = scaling(prescale_factor, postscale_factor, "allreduce")
    communicator = communicator_of(process_set, "allreduce")
    compressor = compressor_around_op(compression)
    dense = as_dense(tensor if grad is None else grad, "allreduce")
    compressed, context = compressor.compress(dense)
    check_reducible(compressed, reduce_op, factors, "allreduce")
    gradient_use.note_users([dense], reduce_op)
    tensor_name, node_name = tickets.names(name, "SmddpAllreduce")
    reduced = allreduce_op(
        compressed,
        tickets.group_ticket(param_index, num_params, reduce_op, communicator),
        reduce_op,
        param_index,
        num_params,
        tensor_name,
        node_name,
        communicator,
        factors,
        hint_of(compression),
    )
    return compressor.decompress(reduced, context)


def grouped_allreduce(
    tensors: Sequence[Any],
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Optional[ProcessSet] = None,
) -> List[tf.Tensor]:
    """Combines the tensors of a group over all ranks, all at once.

    Collective: every rank must call this, with the same number of tensors, which may be 0, in the same order.
    It is what `allreduce` is for each, with `param_index` and `num_params`, and in eager mode faster: the
    group is handed over at once. Tensor number i is called "name/i". All else is as in `allreduce`.

    Returns:
        The reductions, in the same order.
    """
    check_call_site("grouped_allreduce")
    tensors = check_list(tensors, "grouped_allreduce")
    reduce_op = resolve_reduce_op(op)
    reduced = allreduce_group(
        tensors,
        member_names(name, len(tensors)),
        compression,
        reduce_op,
        name or "SmddpGroupedAllreduce",
        communicator_of(process_set, "grouped_allreduce"),
        scaling(prescale_factor, postscale_factor, "grouped_allreduce"),
        "grouped_allreduce",
        labels_are_names=bool(name),
    )
    gradient_use.note_users(reduced, reduce_op)
    return reduced


def allreduce_group(
    tensors: Sequence[Any],
    labels: Sequence[str],
    compression: Any,
    reduce_op: ReduceOp,
    node_name: str,
    communicator: int = 0,
    factors: Scaling = NONE,
    caller: str = "allreduce",
    labels_are_names: bool = False,
    meanings: Sequence[str] = (),
) -> List[tf.Tensor]:
    """Reduces a whole group, with a ticket of its own; the results in the same order.

    In eager mode that is one op, since eager execution would wait for each tensor before it hands over the
    next; in a graph one op for each tensor, so that each starts as soon as its tensor is there; in a function
    that XLA compiles one op again, whose kernel starts all tensors before it waits for any.

    Args:
        tensors: what to reduce, as in `allreduce`.
        labels: what error messages call each; may be empty strings, and may differ between ranks if they are
            not names.
        compression: as in `allreduce`.
        reduce_op: how to combine.
        node_name: the graph's nodes are called so.
        communicator: the ranks that take part.
        factors: as in `allreduce`.
        caller: the user's function, for errors.
        labels_are_names: whether `labels` are the user's names, which are all different: the ranks compare
            them, and in a v1 graph tensors meet by them.
        meanings: of gradients, what the ranks compare (op_parts.gradient).
    """
    if not tensors:
        return []
    compressor = compressor_around_op(compression)
    compressed = [compressor.compress(as_dense(tensor, caller)) for tensor in tensors]
    for tensor, _ in compressed:
        check_reducible(tensor, reduce_op, factors, caller)
    if tf.executing_eagerly() or op_parts.in_xla_context():
        # Tensors that meet by name, and have none, meet by their places in the op.
        by_place = tickets.pairs_by_name() and not labels_are_names
        names = [op_parts.NAMED + label for label in labels] if labels_are_names else labels
        reduced = grouped_allreduce_op(
            [tensor for tensor, _ in compressed],
            tickets.draw_ticket(communicator),
            reduce_op,
            [
                meaning + ("" if by_place else name)
                for meaning, name in itertools.zip_longest(meanings, names, fillvalue="")
            ],
            communicator=communicator,
            scaling=factors,
            compression=hint_of(compression),
        )
    else:
        reduced = []
        ticket = None
        for index, (tensor, _) in enumerate(compressed):
            # Tensors do not meet by a variable's name: a source may appear twice.
            meeting_name, name = tickets.names(labels[index] if labels_are_names else None, node_name)
            if ticket is None or tickets.pairs_by_name():
                ticket = tickets.draw_ticket(communicator)
            reduced.append(
                allreduce_op(
                    tensor,
                    ticket,
                    reduce_op,
                    index,
                    len(compressed),
                    (meanings[index] if meanings else "") + (meeting_name or labels[index]),
                    name,
                    communicator,
                    factors,
                    hint_of(compression),
                )
            )
    return [compressor.decompress(tensor, context) for tensor, (_, context) in zip(reduced, compressed)]


def as_dense(tensor: Any, caller: str) -> tf.Tensor:
    """Returns the tensor, converted to one if need be; IndexedSlices as a dense tensor.

    Raises:
        TypeError: it is ragged or sparse in a way that has no common dense shape on all ranks, or cannot be
            converted.
        ValueError: IndexedSlices without a dense shape.
    """
    if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
        raise TypeError(
            f"tf_smddp cannot reduce a {type(tensor).__name__}: its layout may differ between ranks. "
            "Make it dense first."
        )
    if isinstance(tensor, tf.IndexedSlices) and tensor.dense_shape is None:
        raise ValueError(
            f"tf_smddp cannot make {tensor!r} dense: it has no dense_shape. "
            "Give it one, or make it dense first."
        )
    return to_tensor(tensor, caller)


def check_reducible(tensor: tf.Tensor, reduce_op: ReduceOp, factors: Scaling, caller: str) -> None:
    """Raises TypeError or ValueError, unless the op takes tensors of this type and reduces them so."""
    check_dtype(tensor, caller)
    factors.check(tensor.dtype, caller)
    extremum = reduce_op in (ReduceOp.MIN, ReduceOp.MAX)
    if tensor.dtype == tf.bool and not extremum:
        raise ValueError(
            f"ReduceOp.{reduce_op.name} is not defined for bool. "
            "Use ReduceOp.MIN (true on all ranks) or ReduceOp.MAX (on any), or cast to int32 first."
        )
    if tensor.dtype.is_complex and extremum:
        raise ValueError(
            f"ReduceOp.{reduce_op.name} is not defined for {tensor.dtype.name}: complex numbers have no "
            "order. Reduce their absolute values, or real and imaginary parts."
        )


def check_list(tensors: Any, caller: str) -> List[Any]:
    """Returns the tensors as a list; raises a TypeError if they are one tensor, or none at all."""
    if isinstance(tensors, (list, tuple)):
        return list(tensors)
    raise TypeError(f"{caller}() takes a list of tensors, but got {tensors!r}.")


def member_names(name: Optional[str], count: int) -> List[str]:
    """The names of a group's tensors; empty ones without a name."""
    return [f"{name}/{i}" if name else "" for i in range(count)]


def _check_position(param_index: Any, num_params: Any) -> Tuple[int, int]:
    try:
        index, count = operator.index(param_index), operator.index(num_params)
    except TypeError:
        raise TypeError(
            "allreduce() needs param_index and num_params as Python integers (none for a single tensor), "
            f"but got param_index={param_index!r}, num_params={num_params!r}."
        ) from None
    if not 0 <= index < count:
        raise ValueError(
            f"allreduce() needs 0 <= param_index < num_params, but got param_index={index}, "
            f"num_params={count}."
        )
    return index, count


@op_parts.placed
def allreduce_op(
    tensor: tf.Tensor,
    group_ticket: tf.Tensor,
    reduce_op: ReduceOp,
    param_index: int,
    num_params: int,
    tensor_name: str,
    name: str,
    communicator: int = 0,
    scaling: Scaling = NONE,
    compression: str = "none",
) -> tf.Tensor:
    """Emits one SmddpAllreduce; `tensor_name` pairs it when the ticket is -1, `name` is the node's."""
    return op_parts.ops.smddp_allreduce(
        tensor=tensor,
        ticket=group_ticket,
        reduce_op=reduce_op.value,
        param_index=param_index,
        num_params=num_params,
        compression=compression,
        **op_parts.one_label(tensor_name),
        factors=scaling.inputs(),
        communicator=communicator,
        eager=tf.executing_eagerly(),
        name=name,
    )


@op_parts.placed
def reduction_op(
    make: Callable[..., Any],
    tensors: Sequence[tf.Tensor],
    group_ticket: tf.Tensor,
    reduce_op: ReduceOp,
    tensor_names: Sequence[str],
    name: Optional[str] = None,
    communicator: int = 0,
    scaling: Scaling = NONE,
    **attributes: Any,
) -> List[tf.Tensor]:
    """Emits one op that reduces a whole group.

    `make` is the op as a function of the op library's, and `attributes` are those that it alone has.
    """
    return list(
        make(
            tensors=list(tensors),
            ticket=group_ticket,
            reduce_op=reduce_op.value,
            **op_parts.labels(tensor_names),
            factors=scaling.inputs(),
            communicator=communicator,
            eager=tf.executing_eagerly(),
            name=name,
            **attributes,
        )
    )


grouped_allreduce_op = functools.partial(reduction_op, op_parts.ops.smddp_grouped_allreduce)


@tf.RegisterGradient("SmddpAllreduce")
def _allreduce_gradient(op: tf.Operation, grad: Any) -> List[Optional[tf.Tensor]]:
    reduced = reduce_gradient(
        op,
        grad,
        op_gradients.differentiable(op),
        "SmddpAllreduceGrad",
        op_gradients.scaling_of(op),
        op_gradients.compression_of(op),
    )
    return op_gradients.at_inputs([0], [reduced], len(op.inputs))


@tf.RegisterGradient("SmddpGroupedAllreduce")
def grouped_allreduce_gradient(op: tf.Operation, *grads: Any) -> List[Optional[tf.Tensor]]:
    """The gradient of a reduction of several tensors."""
    reduce_op = op_gradients.differentiable(op)
    positions, dense = op_gradients.dense(op, grads)
    if not dense:
        return [None] * len(op.inputs)
    reduced = grouped_allreduce_op(
        dense,
        op_gradients.draw_ticket(op, dense),
        reduce_op,
        communicator=op_gradients.communicator_of(op),
        scaling=op_gradients.scaling_of(op),
        compression=op_gradients.compression_of(op),
        **op_gradients.names("SmddpAllreduceGrad", positions),
    )
    return op_gradients.at_inputs(positions, reduced, len(op.inputs))


def reduce_gradient(
    op: tf.Operation,
    grad: Any,
    reduce_op: ReduceOp,
    default_name: str,
    factors: Scaling = NONE,
    compression: str = "none",
) -> tf.Tensor:
    """Reduces one gradient, as a group of its own."""
    dense = tf.convert_to_tensor(grad)
    tensor_name, node_name = tickets.names(None, default_name)
    ticket = op_gradients.draw_ticket(op, [dense])
    communicator = op_gradients.communicator_of(op)
    return allreduce_op(
        dense, ticket, reduce_op, 0, 1, tensor_name, node_name, communicator, factors, compression
    )
