"""How fast ranks with a GPU each sum tensors: through tf_smddp, and by NCCL alone in the same processes.

As nccl-tests does: algbw is a tensor's bytes over the time, and busbw is algbw · 2 (n - 1) / n for n ranks,
which does not depend on n where the links are the limit.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple

from smddprun.check.findings import Finding
from smddprun.check.machine import size

KIND = "bandwidth"
TOPIC = "allreduce"
SIZES = (1 << 20, 8 << 20, 64 << 20, 256 << 20)
# Ours is a problem below this part of NCCL's, at this size: smaller ones show the time of a call.
_LEAST = 0.8
_JUDGED = 64 << 20
_GROUP = 4  # tensors that are under way at once
# Inputs and results of a group, for both ways, are to take a small part of the GPU's memory.
_PARTS = 64
_MOST_ROUNDS = 20
_SECONDS = 0.5  # of the rounds of one size


class Rate(NamedTuple):
    """The seconds that a tensor of so many bytes takes; `alone` is NCCL's own time, None if not measured."""

    num_bytes: int
    ours: float
    alone: float | None


def finding_of(rates: Iterable[Sequence[Any]], num_ranks: int) -> Finding:
    """Returns the table, a problem if tf_smddp is far slower than NCCL alone. Pure."""
    bus = 2 * (num_ranks - 1) / num_ranks
    lines, slow = [], ""
    for num_bytes, ours, alone in rates:
        line = f"{size(num_bytes):>8}  {_columns(num_bytes / ours, bus)}"
        if alone is not None:
            line += f"   {_columns(num_bytes / alone, bus)}  {alone / ours:4.0%}"
            if num_bytes == _JUDGED and alone / ours < _LEAST:
                slow = f"at {size(num_bytes)} tf_smddp has {alone / ours:.0%} of NCCL's own speed"
        else:
            line += "   not measured"
        lines.append(line)
    head = f"{'GB/s':>8}  {'algbw':>7} {'busbw':>7}   {'algbw':>7} {'busbw':>7} of NCCL alone, and ours of it"
    text = "\n".join([head, *lines])
    if not slow:
        return Finding(TOPIC, text)
    return Finding(
        TOPIC,
        f"{text}\n{slow}",
        "see that nothing else uses the GPUs ('nvidia-smi'), and that each rank has 2 cores or more (the "
        "line 'cores'); else report it, with this output",
    )


def _columns(rate: float, bus: float) -> str:
    return f"{rate / 1e9:7.2f} {rate * bus / 1e9:7.2f}"


def measure(tf: Any, sdp: Any, number: int) -> list[Rate]:
    """Measures on this rank's GPU. Collective: all ranks call it.

    Args:
      tf: the module tensorflow.
      sdp: the module tf_smddp.
      number: of this rank's GPU, in CUDA's order.

    Raises:
      RuntimeError: CUDA or NCCL fails.
    """
    alone = _Alone(sdp, number)
    try:
        rates = []
        memory = min(sdp.allgather_object(alone.memory))  # the ranks' GPUs may differ
        for num_bytes in (each for each in SIZES if each * _PARTS <= memory):
            ours = _seconds_of_ours(tf, sdp, num_bytes)
            rates.append(Rate(num_bytes, ours, alone.seconds(num_bytes)))
        return rates
    finally:
        alone.close()


def _seconds_of_ours(tf: Any, sdp: Any, num_bytes: int) -> float:
    with tf.device("GPU:0"):
        tensors = [tf.fill([num_bytes // 4], 1.0) for _ in range(_GROUP)]
        return _seconds(lambda: sdp.grouped_allreduce(tensors, op=sdp.ReduceOp.SUM), sdp)


def _seconds(run: Callable[[], object], sdp: Any) -> float:
    """The seconds of a tensor, over some rounds of a group that is complete when `run` returns."""
    run()
    begin = time.monotonic()
    run()
    slowest = max(sdp.allgather_object(time.monotonic() - begin))
    rounds = max(1, min(_MOST_ROUNDS, int(_SECONDS / slowest)))
    begin = time.monotonic()
    for _ in range(rounds):
        run()
    return (time.monotonic() - begin) / (rounds * _GROUP)


class _Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class _Alone:
    """A communicator and a stream of its own, on the context that TensorFlow uses."""

    _FLOAT32, _SUM, _NON_BLOCKING = 7, 0, 1  # of nccl.h and cuda.h

    def __init__(self, sdp: Any, number: int) -> None:
        self._sdp = sdp
        self._cuda, self._nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(_path_of_nccl())
        self._nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, _Id, ctypes.c_int]
        self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._stream, self._communicator = ctypes.c_void_p(), ctypes.c_void_p()
        memory = ctypes.c_size_t()
        self._call("cuDeviceGet", ctypes.byref(device), number)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        self.memory = memory.value  # of the GPU, in bytes
        self._device = device
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxPushCurrent_v2", context)
        self._call("cuStreamCreate", ctypes.byref(self._stream), self._NON_BLOCKING)
        own = _Id()
        if sdp.rank() == 0:
            self._call("ncclGetUniqueId", ctypes.byref(own))
        shared = _Id.from_buffer_copy(sdp.broadcast_object(bytes(own), 0))
        self._call("ncclCommInitRank", ctypes.byref(self._communicator), sdp.size(), shared, sdp.rank())

    def seconds(self, num_bytes: int) -> float:
        """As `_seconds`, for calls of ncclAllReduce one behind the other."""
        places = [ctypes.c_void_p(), ctypes.c_void_p()]
        for place in places:
            self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(num_bytes))

        def run() -> None:
            for _ in range(_GROUP):
                self._call(
                    "ncclAllReduce",
                    *places,
                    ctypes.c_size_t(num_bytes // 4),
                    self._FLOAT32,
                    self._SUM,
                    self._communicator,
                    self._stream,
                )
            self._call("cuStreamSynchronize", self._stream)

        try:
            return _seconds(run, self._sdp)
        finally:
            for place in places:
                self._call("cuMemFree_v2", place)

    def close(self) -> None:
        """Gives all back, in whatever state."""
        if self._communicator:
            self._call("ncclCommDestroy", self._communicator)
        self._call("cuStreamDestroy_v2", self._stream)
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _call(self, name: str, *arguments: Any) -> None:
        library = self._nccl if name.startswith("nccl") else self._cuda
        result = getattr(library, name)(*arguments)
        if result != 0:
            text = ""
            if library is self._nccl:
                text = f" ({library.ncclGetErrorString(result).decode()})"
            raise RuntimeError(f"{name} of {library._name} failed: {result}{text}")


def _path_of_nccl() -> str:
    """The path of the NCCL that the engine has opened in this process."""
    with open("/proc/self/maps") as maps:
        return next((line.split()[-1] for line in maps if "/libnccl" in line), "libnccl.so.2")
