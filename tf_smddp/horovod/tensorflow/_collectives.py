"""Horovod's collectives. All ranks call them in the same order, as those of tf_smddp."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

import tf_smddp as sdp
from tf_smddp import Compression, ReduceOp, global_process_set
from tf_smddp._collectives.broadcast import broadcast_with_name
from tf_smddp._collectives.scaling import scaling
from tf_smddp._guards import gradient_use
from tf_smddp.horovod.tensorflow._arguments import op_of, set_of


def _with_gradient_times(tensor: Any, factor: float) -> tf.Tensor:
    """Returns the tensor, with a gradient that is multiplied: Horovod's are scaled in another way."""
    tensor = tf.convert_to_tensor(tensor)
    if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return tensor

    @tf.custom_gradient
    def identity(value: tf.Tensor) -> Any:
        return tf.identity(value), lambda upstream: upstream * tf.constant(factor, upstream.dtype)

    return identity(tensor)


def _scaled_integers(tensor: tf.Tensor, factor: float) -> tf.Tensor:
    """Multiplies integers in float64 and cuts the fraction off, as Horovod does."""
    return tensor if factor == 1.0 else tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def _with_factors(
    reduce: Callable[[List[tf.Tensor], float, float], Sequence[tf.Tensor]],
    tensors: Sequence[Any],
    prescale_factor: float,
    postscale_factor: float,
    caller: str,
) -> List[tf.Tensor]:
    """Calls `reduce`; for integers, which the engine does not scale, with the factors around it."""
    if (prescale_factor, postscale_factor) == (1.0, 1.0):
        return list(reduce(list(tensors), 1.0, 1.0))
    converted = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not all(tensor.dtype.is_integer for tensor in converted):
        return list(reduce(converted, prescale_factor, postscale_factor))
    factors = scaling(prescale_factor, postscale_factor, caller)
    results = reduce([_scaled_integers(tensor, factors.prescale) for tensor in converted], 1.0, 1.0)
    return [_scaled_integers(result, factors.postscale) for result in results]


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """As `tf_smddp.allreduce`, with Average by default.

    The rows of a `tf.IndexedSlices` are gathered, as Horovod does: for Sum and Average, without factors.

    Raises:
        NotImplementedError: a `tf.IndexedSlices` with another operation, or with factors.
        ValueError: both `average` and `op` are given; and as `tf_smddp.allreduce`.
    """
    reduce_op = op_of(average, op)
    if not isinstance(tensor, tf.IndexedSlices):

        def reduce(tensors: List[tf.Tensor], before: float, after: float) -> List[tf.Tensor]:
            return [
                sdp.allreduce(
                    tensors[0],
                    compression=compression,
                    op=reduce_op,
                    name=name,
                    prescale_factor=before,
                    postscale_factor=after,
                    process_set=set_of(process_set),
                )
            ]

        return _with_factors(reduce, [tensor], prescale_factor, postscale_factor, "hvd.allreduce")[0]
    if reduce_op not in (ReduceOp.SUM, ReduceOp.AVERAGE) or (prescale_factor, postscale_factor) != (1.0, 1.0):
        raise NotImplementedError(
            "hvd.allreduce() of tf.IndexedSlices gathers the rows, so it has only Sum and Average, without "
            "factors. Make the tensor dense first: tf.convert_to_tensor(slices)."
        )
    gradient_use.note_users([tensor.values], reduce_op)
    values, indices = (
        allgather(part, f"{name}/{kind}" if name else None, process_set=process_set)
        for kind, part in (("values", tensor.values), ("indices", tensor.indices))
    )
    if reduce_op is ReduceOp.AVERAGE:
        values /= tf.cast(process_set.size(), values.dtype)
    return tf.IndexedSlices(values, indices, tensor.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: sdp.ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> List[Any]:
    """As `tf_smddp.grouped_allreduce`, with Average by default; `tf.IndexedSlices` as in `allreduce`."""
    reduce_op = op_of(average, op)
    results = list(tensors)
    dense = [i for i, tensor in enumerate(results) if not isinstance(tensor, tf.IndexedSlices)]

    def reduce(group: List[tf.Tensor], before: float, after: float) -> List[tf.Tensor]:
        return sdp.grouped_allreduce(
            group,
            compression,
            reduce_op,
            name,
            prescale_factor=before,
            postscale_factor=after,
            process_set=set_of(process_set),
        )

    for i, tensor in enumerate(results):
        if i not in dense:
            results[i] = allreduce(
                tensor,
                op=reduce_op,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
                name=f"{name}/{i}" if name else None,
                process_set=process_set,
            )
    if dense:
        reduced = _with_factors(
            reduce, [results[i] for i in dense], prescale_factor, postscale_factor, "hvd.grouped_allreduce"
        )
        for i, result in zip(dense, reduced):
            results[i] = result
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = ReduceOp.AVERAGE,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """As `tf_smddp.reducescatter`, between `compress` and `decompress`.

    The gradient is Horovod's: as many times larger as there are ranks.
    """
    compressed, context = compression.compress(_with_gradient_times(tensor, process_set.size()))

    def reduce(tensors: List[tf.Tensor], before: float, after: float) -> List[tf.Tensor]:
        return [sdp.reducescatter(tensors[0], op_of(None, op), name, before, after, set_of(process_set))]

    result = _with_factors(reduce, [compressed], prescale_factor, postscale_factor, "hvd.reducescatter")[0]
    return compression.decompress(result, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = ReduceOp.AVERAGE,
    process_set: sdp.ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[tf.Tensor]:
    """As `tf_smddp.grouped_reducescatter`, likewise."""
    size = process_set.size()
    compressed = [compression.compress(_with_gradient_times(tensor, size)) for tensor in tensors]

    def reduce(group: List[tf.Tensor], before: float, after: float) -> List[tf.Tensor]:
        return sdp.grouped_reducescatter(group, op_of(None, op), None, before, after, set_of(process_set))

    results = _with_factors(
        reduce,
        [each for each, _ in compressed],
        prescale_factor,
        postscale_factor,
        "hvd.grouped_reducescatter",
    )
    return [compression.decompress(each, context) for each, (_, context) in zip(results, compressed)]


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> tf.Tensor:
    """As `tf_smddp.allgather`. The gradient is Horovod's: the ranks' mean, where tf_smddp's is their sum."""
    return sdp.allgather(_with_gradient_times(tensor, 1 / process_set.size()), name, set_of(process_set))


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> List[tf.Tensor]:
    """As `tf_smddp.grouped_allgather`, likewise."""
    share = 1 / process_set.size()
    return sdp.grouped_allgather(
        [_with_gradient_times(tensor, share) for tensor in tensors], name, set_of(process_set)
    )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> tf.Tensor:
    """As `tf_smddp.broadcast`. The gradient is Horovod's: the ranks' mean, where tf_smddp's is their sum."""
    share = 1 / process_set.size()
    return sdp.broadcast(_with_gradient_times(tensor, share), root_rank, name, set_of(process_set))


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> List[Any]:
    """Gives the variables the root's values, and returns them; in a v1 graph, tensors that do so."""
    found = list(variables)
    operation = broadcast_with_name(found, root_rank, set_of(process_set), name)
    if operation is None:
        return found
    with tf.control_dependencies([operation]):
        return [variable.read_value() for variable in found]


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: sdp.ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """As `tf_smddp.broadcast_variables`. `inplace` has no effect: variables are written where they are."""
    return sdp.broadcast_variables(variables, root_rank, set_of(process_set))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: sdp.ProcessSet = global_process_set,
) -> Union[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
    """As `tf_smddp.alltoall`: with `splits`, a pair of the rows and how many came from each rank (int32)."""
    result = sdp.alltoall(tensor, splits, name, set_of(process_set))
    if splits is None:
        return result
    rows, received = result
    return rows, tf.cast(received, tf.int32)


def barrier(process_set: sdp.ProcessSet = global_process_set) -> Any:
    """As `tf_smddp.barrier`."""
    return sdp.barrier(process_set=set_of(process_set))


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> Any:
    """As `tf_smddp.broadcast_object`, which needs no session."""
    return sdp.broadcast_object(obj, root_rank, name, set_of(process_set))


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function of an object, which broadcasts it."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: Optional[str] = None,
    process_set: sdp.ProcessSet = global_process_set,
) -> List[Any]:
    """As `tf_smddp.allgather_object`, which needs no session."""
    return sdp.allgather_object(obj, name, set_of(process_set))
