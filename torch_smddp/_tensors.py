"""Tensors as the engine's buffers."""

from __future__ import annotations

from typing import Any

import torch

from smddp import Buffer, DType

DTYPES = {getattr(torch, each.name.lower()): each for each in DType if hasattr(torch, each.name.lower())}


def buffer_of(tensor: torch.Tensor) -> Buffer:
    """Returns where a contiguous tensor lies; on a GPU, with the stream that torch uses in this thread."""
    buffer = Buffer()
    locate(tensor, buffer)
    return buffer


def locate(tensor: torch.Tensor, buffer: Buffer) -> None:
    """Sets a buffer to what `buffer_of` returns."""
    buffer.data, buffer.bytes, buffer.memory = tensor.data_ptr(), tensor.nbytes, not tensor.is_cpu
    if not tensor.is_cpu:
        buffer.stream = torch.cuda.current_stream(tensor.device).cuda_stream


def as_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, which a reduction is about to read, laid out in memory by its shape.

    Raises:
        TypeError: the engine has no reduction of its dtype.
    """
    if tensor.dtype not in DTYPES:
        raise TypeError(
            f"the backend smddp does not reduce tensors of {tensor.dtype}; convert them: "
            f"tensor.float(). It has {', '.join(sorted(str(each) for each in DTYPES))}"
        )
    return tensor.contiguous()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose content is only moved: contiguous, in a dtype that the engine has."""
    tensor = tensor.contiguous()
    return tensor if tensor.dtype in DTYPES else tensor.view(-1).view(torch.uint8)


def check_dense(tensor: Any) -> None:
    """Checks what a collective got.

    Raises:
        TypeError: it is no dense tensor of a CPU or an NVIDIA GPU.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a collective takes a tensor, but got {tensor!r}")
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(
            f"the backend smddp takes dense tensors of a CPU or an NVIDIA GPU, but got one on "
            f"{tensor.device} with the layout {tensor.layout}; use to_dense(), or cpu()"
        )
