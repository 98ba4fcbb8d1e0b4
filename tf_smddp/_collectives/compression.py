"""Compression: how a tensor may be compressed on its way over a network.

Our three compressors are a hint. Between hosts, and where NCCL reduces tensors of GPUs, sums and averages of
float32 tensors cross in the format of 16 bits that it names. Ranks that read each other's memory on one host
reduce them in float32. Their methods cast if users call them. A user's own compressor is applied before and
after the op.
"""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf


class Compressor:
    """The interface of a compressor.

    Derive your own compressor from it, or from a member of `Compression`.
    """

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        """Returns (compressed tensor, context); the context is what `decompress` needs to undo it."""
        raise NotImplementedError("A compressor defines compress(tensor) -> (tensor, context).")

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor as it was before `compress`, given the context that `compress` returned."""
        raise NotImplementedError("A compressor defines decompress(tensor, context) -> tensor.")


class NoneCompressor(Compressor):
    """Leaves every tensor as it is."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        """Returns (tensor, None)."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor."""
        return tensor


class FP16Compressor(Compressor):
    """Casts floating-point tensors to float16 and back; leaves others as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        """Returns (tensor as float16, its dtype); a tensor that is not floating-point stays as it is."""
        return _cast_floating(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor in the dtype it had before."""
        return _cast_floating(tensor, ctx)


class BF16Compressor(Compressor):
    """Casts floating-point tensors to bfloat16 and back; leaves others as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        """Returns (tensor as bfloat16, its dtype); a tensor that is not floating-point stays as it is."""
        return _cast_floating(tensor, tf.bfloat16), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor in the dtype it had before."""
        return _cast_floating(tensor, ctx)


class Compression:
    """The available compressors: `Compression.none`, `Compression.fp16`, `Compression.bf16`.

    For a compressor of your own, pass a class (or an object) with the same two functions as `compression=`:

        class Clipped(sdp.Compression.none):
            @staticmethod
            def compress(tensor):
                return tf.clip_by_value(tensor, -1.0, 1.0), None
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_HINTS = {Compression.none: "none", Compression.fp16: "fp16", Compression.bf16: "bf16"}


def hint_of(compression: Any) -> str:
    """Returns the op's attribute for one of our hints; "none" for a user's own compressor."""
    return next((name for hint, name in _HINTS.items() if compression is hint), "none")


def compressor_around_op(compression: Any) -> Any:
    """Returns the compressor to apply before and after the op.

    This is the user's own compressor, or `Compression.none` for one of our hints.

    Raises:
        TypeError: `compression` does not have the two functions.
    """
    if any(compression is hint for hint in _HINTS):
        return Compression.none
    if not (
        callable(getattr(compression, "compress", None))
        and callable(getattr(compression, "decompress", None))
    ):
        raise TypeError(
            f"compression must be Compression.none, .fp16, .bf16, or a class with compress(tensor) and "
            f"decompress(tensor, ctx), but is {compression!r}."
        )
    return compression


def _cast_floating(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tensor, dtype) if tensor.dtype.is_floating and tensor.dtype != dtype else tensor
