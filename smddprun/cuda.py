"""What CUDA's driver says of the GPUs, asked through ctypes.

Place in the stack: for `--check`, and for a process of its own that the launcher starts (gpus.py). The
launcher's process loads no driver: ranks are forked from it, and a driver that hangs would hang it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

NO_DEVICE = 100
_LIBRARY = "libcuda.so.1"
_TEXT_BYTES = 256


class Gpu(NamedTuple):
    """One GPU. `memory` is in bytes; `bus_id`, such as '0000:10:00.0', is equal for the parts of one GPU."""

    name: str
    memory: int
    bus_id: str


class Driver(NamedTuple):
    """What the driver says: the CUDA that it is for, as 12040, its error or 0, and the GPUs in its order.

    `apart` has the pairs of GPUs of which one cannot reach the other's memory.
    """

    version: int
    error: int
    error_text: str
    gpus: tuple[Gpu, ...] = ()
    apart: tuple[tuple[int, int], ...] = ()

    @property
    def version_text(self) -> str:
        """The CUDA that the driver is for, as '12.4'."""
        return f"{self.version // 1000}.{self.version % 1000 // 10}"


class _Failed(Exception):
    pass


def ask() -> Driver | None:
    """Asks the driver, which begins in this process; None if there is none. It makes no context."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    try:
        _call(library, "cuInit", 0)
        count = ctypes.c_int(0)
        _call(library, "cuDeviceGetCount", ctypes.byref(count))
        handles = [_handle(library, number) for number in range(count.value)]
        found = tuple(_gpu(library, handle) for handle in handles)
        pairs = [(one, other) for other in range(len(handles)) for one in range(other)]
        apart = tuple(pair for pair in pairs if not _reach(library, *(handles[each] for each in pair)))
    except _Failed as error:
        number, text = error.args
        return Driver(version.value, number, text)
    return Driver(version.value, 0, "", found, apart)


def main() -> int:
    """Writes the bytes of the smallest GPU, or fails."""
    driver = ask()
    if driver is None or not driver.gpus:
        return 1
    print(min(each.memory for each in driver.gpus))
    return 0


def _handle(library: Any, number: int) -> int:
    handle = ctypes.c_int(0)
    _call(library, "cuDeviceGet", ctypes.byref(handle), number)
    return handle.value


def _gpu(library: Any, handle: int) -> Gpu:
    name, bus_id = ctypes.create_string_buffer(_TEXT_BYTES), ctypes.create_string_buffer(_TEXT_BYTES)
    memory = ctypes.c_size_t(0)
    _call(library, "cuDeviceGetName", name, _TEXT_BYTES, handle)
    _call(library, "cuDeviceGetPCIBusId", bus_id, _TEXT_BYTES, handle)
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
    return Gpu(name.value.decode(errors="replace"), memory.value, bus_id.value.decode(errors="replace"))


def _reach(library: Any, one: int, other: int) -> bool:
    reach = ctypes.c_int(0)
    for here, there in ((one, other), (other, one)):
        _call(library, "cuDeviceCanAccessPeer", ctypes.byref(reach), here, there)
        if not reach.value:
            return False
    return True


def _call(library: Any, name: str, *arguments: Any) -> None:
    result = getattr(library, name)(*arguments)
    if result != 0:
        text = ctypes.c_char_p()
        library.cuGetErrorString(result, ctypes.byref(text))
        raise _Failed(
            result, f"{name} failed: {(text.value or b'an unknown error').decode(errors='replace')}"
        )
