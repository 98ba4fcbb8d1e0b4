"""The program that asks the engine of tf_smddp which libraries it finds. It imports TensorFlow."""

from __future__ import annotations

import ctypes
import os

from smddprun.check import findings

KIND = "libraries"


def main() -> int:
    """Writes what the engine finds, by name: whether it is found, and its version and path or why not."""
    try:
        # It imports TensorFlow, and refuses one for which it was not built; the text says what to do.
        from tf_smddp._found_libraries import found_libraries

        found: dict[str, tuple[bool, str]] = {}
        for name, library in found_libraries().items():
            found[name] = (library.found, library.text)
    except Exception as error:  # whatever it is, it is what the user has to know
        _write({"error": f"{type(error).__name__}: {error}"})
        return 1
    if found["CUDA driver"][0]:
        found["CUDA driver"] = (True, _cuda_driver())
    _write({"found": found})
    return 0


def _cuda_driver() -> str:
    """The version of CUDA that the driver is for, and its path."""
    version = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "/libcuda.so" in line]
    return f"for CUDA {version.value // 1000}.{version.value % 1000 // 10} ({paths[0] if paths else '?'})"


def _write(content: object) -> None:
    os.write(1, findings.encode(KIND, content).encode())
