"""allreduce: combines a tensor over all ranks."""

from __future__ import annotations

import operator
from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_smddp import _op_library, _tickets
from tf_smddp._autograph import not_converted
from tf_smddp._compression import Compression, compressor_around_op
from tf_smddp._reduce_op import ReduceOp, resolve_reduce_op
from tf_smddp._runtime import require_initialized


@not_converted
def allreduce(
    tensor: Any = None,
    param_index: Optional[int] = None,
    num_params: Optional[int] = None,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    *,
    grad: Any = None,
) -> tf.Tensor:
    """Combines one tensor of a group over all ranks; every rank gets the same result, to the bit.

    Collective: every rank must call this, for the same groups in the same order. A group is a set of
    `num_params` tensors that belong together, such as the gradients of one step; its tensors may come in any
    order and are reduced at once. In a `tf.function` the result must be used, else TensorFlow prunes the op
    on this rank. Eager execution waits for each result, so there the order within a group must be the same on
    all ranks too, and `DistributedGradientTape`, which hands over a group at once, is faster.

    It can be differentiated for SUM and AVERAGE: the gradient is reduced in the same way.

    Args:
        tensor: what to reduce: a tensor or something that becomes one, of any shape, the same on all ranks,
            and of type float16, bfloat16, float32, float64, int32, int64, uint8, or, for MIN and MAX, bool.
            `tf.IndexedSlices` are made dense first.
        param_index: which tensor of the group this is, 0 <= param_index < num_params.
        num_params: how many tensors the group has.
        compression: one of `Compression`'s, a hint that changes no value on one host, or your own compressor,
            which is applied around the op.
        op: how to combine; None is AVERAGE.
        name: a name for error messages and for the node. In a v1 graph tensors of different ranks meet by it;
            there the default is the node's name.
        grad: another name for `tensor`.

    Returns:
        A dense tensor of the same shape and type.

    Raises:
        RuntimeError: before `init`.
        TypeError: an argument is missing or of a wrong type, or the tensor's type is not supported.
        ValueError: `param_index` is out of range, or `op` is not defined for bool.
        tf.errors.InternalError, tf.errors.FailedPreconditionError: the ranks disagree, or one is gone;
            the text says which, and what to do.
    """
    require_initialized("allreduce")
    if (tensor is None) == (grad is None):
        raise TypeError("allreduce() takes one tensor: give either `tensor` or its other name `grad`.")
    param_index, num_params = _check_position(param_index, num_params)
    reduce_op = resolve_reduce_op(op)
    compressor = compressor_around_op(compression)
    compressed, context = compressor.compress(as_dense(tensor if grad is None else grad))
    check_reducible(compressed, reduce_op)
    tensor_name, node_name = _tickets.names(name, "SmddpAllreduce")
    reduced = _op_library.allreduce(
        compressed,
        _tickets.group_ticket(param_index, num_params, reduce_op),
        reduce_op,
        param_index,
        num_params,
        tensor_name,
        node_name,
    )
    return compressor.decompress(reduced, context)


def allreduce_group(
    tensors: Sequence[Any], labels: Sequence[str], compression: Any, reduce_op: ReduceOp, node_name: str
) -> List[tf.Tensor]:
    """Reduces a whole group, with a ticket of its own; the results in the same order.

    In eager mode that is one op, since eager execution would wait for each tensor before it hands over the
    next; in a graph one op for each tensor, so that each starts as soon as its tensor is there.

    Args:
        tensors: what to reduce, as in `allreduce`.
        labels: what error messages call each; may be empty strings, and may differ between ranks.
        compression: as in `allreduce`.
        reduce_op: how to combine.
        node_name: the graph's nodes are called so.
    """
    if not tensors:
        return []
    compressor = compressor_around_op(compression)
    compressed = [compressor.compress(as_dense(tensor)) for tensor in tensors]
    for tensor, _ in compressed:
        check_reducible(tensor, reduce_op)
    ticket = _tickets.draw_ticket()
    if tf.executing_eagerly():
        reduced = _op_library.grouped_allreduce(
            [tensor for tensor, _ in compressed], ticket, reduce_op, labels
        )
    else:
        reduced = []
        for index, (tensor, _) in enumerate(compressed):
            # Where tensors meet by name, labels will not do: a source may appear twice.
            meeting_name, _ = _tickets.names(None, node_name)
            reduced.append(
                _op_library.allreduce(
                    tensor,
                    ticket,
                    reduce_op,
                    index,
                    len(compressed),
                    meeting_name or labels[index],
                    node_name,
                )
            )
    return [compressor.decompress(tensor, context) for tensor, (_, context) in zip(reduced, compressed)]


def as_dense(tensor: Any) -> tf.Tensor:
    """Returns the tensor, converted to one if need be; IndexedSlices as a dense tensor.

    Raises:
        TypeError: it is ragged or sparse in a way that has no common dense shape on all ranks.
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
    return tf.convert_to_tensor(tensor)


def check_reducible(tensor: tf.Tensor, reduce_op: ReduceOp) -> None:
    """Raises TypeError or ValueError, unless the op takes tensors of this type and reduces them so."""
    _op_library.check_dtype(tensor, "allreduce")
    if tensor.dtype == tf.bool and reduce_op not in (ReduceOp.MIN, ReduceOp.MAX):
        raise ValueError(
            f"ReduceOp.{reduce_op.name} is not defined for bool. "
            "Use ReduceOp.MIN (true on all ranks) or ReduceOp.MAX (on any), or cast to int32 first."
        )


def _check_position(param_index: Any, num_params: Any) -> Tuple[int, int]:
    try:
        index, count = operator.index(param_index), operator.index(num_params)
    except TypeError:
        raise TypeError(
            "allreduce() needs param_index and num_params as Python integers (for a single tensor: 0 and 1), "
            f"but got param_index={param_index!r}, num_params={num_params!r}."
        ) from None
    if not 0 <= index < count:
        raise ValueError(
            f"allreduce() needs 0 <= param_index < num_params, but got param_index={index}, "
            f"num_params={count}."
        )
    return index, count
