"""The engine's library of this process, called through ctypes.

kernels/process/smddp.h describes its functions. A process has one: libsmddp.so in this folder, or the library
that a front end brings (`use_library`). It is loaded when a function of it is first needed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import sys
import threading
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

_TEXT_BYTES = 16384
_OWN = pathlib.Path(__file__).resolve().parent / "libsmddp.so"

# Called when a request has ended: context, result, text of the error.
DONE = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)

# The arguments of each function. It returns an int, unless it is named below.
_ARGUMENTS: Dict[str, List[Any]] = {
    "last_error": [],
    "init": [c_char_p, c_char_p],
    "shutdown": [],
    "is_initialized": [],
    "rank": [],
    "size": [],
    "local_rank": [],
    "local_size": [],
    "create_communicator": [POINTER(c_int), c_int, POINTER(c_uint32)],
    "create_communicator_among": [POINTER(c_int), c_int, c_uint64, POINTER(c_uint32)],
    "remove_communicator": [c_uint32],
    "communicator_rank": [c_uint32],
    "communicator_size": [c_uint32],
    "leave": [c_uint32],
    "return": [c_uint32, POINTER(c_int)],
    "allocate": [c_size_t],
    "free": [c_void_p],
    "is_in_arena": [c_void_p],
    "request_init": [c_void_p, c_size_t],
    "submit": [c_void_p, DONE, c_void_p],
    "run": [c_void_p],
    "start": [c_void_p, c_size_t, POINTER(c_void_p)],
    "test": [c_void_p],
    "wait": [c_void_p],
    "release": [c_void_p],
    "draw_ticket": [c_uint32, POINTER(c_uint64)],
    "fail": [c_uint32, c_char_p],
    "fail_group": [c_uint32, c_uint64, c_char_p],
    "abort": [c_char_p],
    "abort_text": [c_char_p, c_size_t],
    "stats": [c_int, c_char_p, c_size_t],
    "start_timeline": [c_char_p],
    "stop_timeline": [],
    "watch_interrupts": [],
    "stop_watching_interrupts": [],
    "note_script_end": [],
    "find_libraries": [c_char_p, c_char_p, c_char_p, c_size_t],
    "process_manager": [c_char_p, c_size_t],
}
_RESULTS: Dict[str, Any] = {
    "last_error": c_char_p,
    "allocate": c_void_p,
    **dict.fromkeys(("free", "request_init", "release", "fail", "fail_group", "abort", "abort_text")),
    "stop_watching_interrupts": None,
    "note_script_end": None,
}

# The package that users import, for messages.
front_end = "smddp"
_path = _OWN
_engine: Optional[ctypes.CDLL] = None
_lock = threading.Lock()


def use_library(path: Union[str, os.PathLike], package: str = "smddp") -> None:
    """Has this process use the engine's library at `path`; for a front end, before all other functions.

    Args:
        path: of libsmddp.so, or of another library with the functions of smddp.h.
        package: the name of the front end, for messages.

    Raises:
        RuntimeError: this process has loaded another library already.
    """
    global _path, front_end
    path = pathlib.Path(path)
    with _lock:
        if _engine is not None and path != _path:
            raise RuntimeError(
                f"this process uses {_path} already, and cannot use {path} as well: it would be in two jobs. "
                f"Import {package} before other packages that use smddp, or before smddp.init()"
            )
        _path, front_end = path, package


def engine() -> ctypes.CDLL:
    """Returns the library, whose functions have the names of smddp.h.

    Raises:
        ImportError: it is not there.
    """
    return _engine or _load()


def _load() -> ctypes.CDLL:
    global _engine
    with _lock:
        if _engine is None:
            if not _path.is_file():
                raise ImportError(
                    f"the engine's library is missing: {_path}. This is a source tree, or the installation "
                    "is incomplete. Install it again: pip install --force-reinstall --no-deps --no-cache-dir "
                    "<source or wheel of tf_smddp>"
                )
            loaded = ctypes.CDLL(str(_path))
            for name, arguments in _ARGUMENTS.items():
                function = getattr(loaded, f"smddp_{name}")
                function.argtypes = arguments
                function.restype = _RESULTS.get(name, c_int)
            _engine = loaded
        return _engine


def text_of(data: Optional[bytes]) -> str:
    """Returns a text of the library's."""
    return (data or b"").decode("utf-8", errors="replace")


def check(result: int) -> None:
    """Raises what the last function of the library in this thread has reported, unless `result` is 0.

    Raises:
        RuntimeError: it has failed; the text says why.
    """
    if result != 0:
        raise RuntimeError(text_of(engine().smddp_last_error()))


def check_in_thread(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function that may wait, in a thread, since Python handles Ctrl-C only between its own steps.

    Where the system has no thread left, it is called all the same, and Ctrl-C has to wait.

    Raises:
        RuntimeError: it has failed; the text says why.
    """
    failures: List[RuntimeError] = []

    def start() -> None:
        try:
            check(function(*arguments))
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=start, name="smddp-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        start()
    else:
        thread.join()
    if failures:
        raise failures[0]


def places() -> List[bytes]:
    """Returns where smddp_init and smddp_find_libraries look: for NCCL, and for a library of MPI.

    NCCL's path is "" if the package nvidia-nccl-cu* is not installed.
    """
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        package = None
    folders = package.submodule_search_locations if package else None
    paths = [pathlib.Path(folder) / "lib" / "libnccl.so.2" for folder in folders or []]
    nccl = next((str(path) for path in paths if path.is_file()), "")
    return [nccl.encode(), os.fsencode(sys.prefix)]


class FoundLibrary(NamedTuple):
    """A library as the engine has found it: its version and path, or why it cannot use any."""

    found: bool
    text: str


def found_libraries() -> Dict[str, FoundLibrary]:
    """Opens the libraries of others as `init` would in this process, which need not be in a job.

    MPI's is the one that belongs to the launcher of this process, if that is an MPI launcher. Not while
    another thread is in `init`.

    Returns:
        "CUDA driver", "NCCL" and "MPI library", each with what was found.

    Raises:
        RuntimeError: a variable of the environment is wrong; the text names it, its value and the remedy.
    """
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    check(engine().smddp_find_libraries(*places(), text, _TEXT_BYTES))
    found = {}
    for line in text_of(text.value).splitlines():
        name, state, what = line.split("\t", 2)
        found[name] = FoundLibrary(state == "found", what)
    return found
