"""Which libraries of others the engine finds at run time: the CUDA driver, NCCL and MPI.

Place in the stack: above _library.py. `smddprun --check` calls it, in a process of its own. The searches are
the engine's (kernels/process/found_libraries.h).
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Dict, NamedTuple

from tf_smddp import _library

_TEXT_BYTES = 16384


class FoundLibrary(NamedTuple):
    """A library as the engine has found it: its version and path, or why it cannot use any."""

    found: bool
    text: str


def found_libraries() -> Dict[str, FoundLibrary]:
    """Opens the libraries as `init` would in this process, without initializing them.

    MPI's is the one that belongs to the launcher of this process, if that is an MPI launcher.

    Returns:
        "CUDA driver", "NCCL" and "MPI library", each with what was found.

    Raises:
        RuntimeError: a variable of the environment is wrong; the text names it, its value and the remedy.
    """
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    _library.check_result(
        _library.load()[1].smddp_find_libraries(
            _library.nccl_library().encode(), os.fsencode(sys.prefix), text, ctypes.c_size_t(_TEXT_BYTES)
        )
    )
    found = {}
    for line in text.value.decode("utf-8", errors="replace").splitlines():
        name, state, what = line.split("\t", 2)
        found[name] = FoundLibrary(state == "found", what)
    return found
