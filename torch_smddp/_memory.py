"""The memory of gradients on the CPU: in the arena, so that no collective copies them.

torch has one allocator for the CPU, which C++ alone can replace. arena_allocator.cc does so. It is compiled
for the torch and the processor at hand at the first use, in some seconds, and kept in the user's cache.
torch.utils.cpp_extension needs ninja for that, and a process that is killed leaves its lock to the others.

Only what a thread allocates in a backward pass comes from the arena. The arena is shared memory, of which a
forked process has no snapshot: a DataLoader's worker would see what the parent writes there later.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import warnings
from typing import Any, Callable, List, Optional

import torch

import smddp
from smddp.library import engine

# The engine copies smaller tensors anyway, by default, which costs less than to look for them.
_ABOVE_BYTES = 4096
_COMPILER_SECONDS = 120
_SOURCE = pathlib.Path(__file__).with_name("arena_allocator.cc")

_use_count: Optional[Callable[[int], int]] = getattr(torch._C, "_storage_Use_Count", None)


class InArena:
    """Has this thread allocate tensors of more than 4 KiB in the arena until it is called or freed.

    As a callback of autograd that is the end of a run, whether that succeeds or not.
    """

    def __init__(self, switch: Callable[[bool], Any]):
        """Begins; `arena_switch` returns the switch."""
        self._switch = switch
        switch(True)

    @torch._disable_dynamo
    def __call__(self) -> None:
        self._switch(False)

    __del__ = __call__


@functools.cache
def arena_switch() -> Optional[Callable[[bool], Any]]:
    """Returns what says whether this thread allocates in the arena; None if that is not possible here.

    The first call of a user on a machine compiles the allocator; calls of other processes wait for that.
    Where it fails, a warning names the reason and the remedy.
    """
    try:
        switch = ctypes.CDLL(str(_compiled()))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        if smddp.local_rank() == 0:
            warnings.warn(
                "DistributedDataParallel copies gradients on a CPU, since they cannot lie in shared memory: "
                f"{error}. Remedy: a C++ compiler that knows C++20, such as g++ 10 or what CXX names, and a "
                "folder for the result, in XDG_CACHE_HOME",
                stacklevel=2,
            )
        return None
    address = ctypes.c_void_p
    functions = (engine().smddp_allocate, engine().smddp_free, engine().smddp_is_in_arena)
    switch.torch_smddp_install(
        ctypes.c_size_t(_ABOVE_BYTES), *(ctypes.cast(each, address) for each in functions)
    )
    switch.torch_smddp_use_arena.argtypes = [ctypes.c_int]
    switch.torch_smddp_use_arena.restype = None
    return switch.torch_smddp_use_arena


def _compiled() -> pathlib.Path:
    """Returns the path of the compiled allocator."""
    library = _library()
    if library.exists():
        return library
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        open(library.with_suffix(".lock"), "w") as lock,
        tempfile.TemporaryDirectory(dir=library.parent) as folder,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            result = pathlib.Path(folder, library.name)
            _compile(result)
            result.replace(library)
    return library


def _compile(result: pathlib.Path) -> None:
    done = subprocess.run(
        [*_command(), "-o", str(result)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMPILER_SECONDS,
    )
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        why = next((line for line in lines if "error" in line), "\n".join(lines[-1:]))
        raise RuntimeError(f"{_command()[0]} has failed: {why}")


def _command() -> List[str]:
    """Returns the compiler's call, without its output."""
    compiler = shlex.split(os.environ.get("CXX", "")) or [
        next(filter(shutil.which, ("g++", "c++", "clang++")), "g++")
    ]
    root = pathlib.Path(torch.__file__).parent
    return [
        *compiler,
        "-O2",
        "-std=c++20",  # as torch's own extensions
        "-shared",
        "-fPIC",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{root / 'include'}",
        str(_SOURCE),
        f"-L{root / 'lib'}",
        "-lc10",
    ]


def _library() -> pathlib.Path:
    """Returns where the compiled allocator is or belongs.

    Raises:
        RuntimeError: there is no home directory, or others may write to the folder.
    """
    text = f"{_command()} {platform.machine()} {_SOURCE.read_text()}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache, "torch_smddp")
    if folder.exists():
        status = folder.stat()
        if status.st_uid not in (0, os.getuid()) or status.st_mode & stat.S_IWOTH:
            raise RuntimeError(f"other users may write to {folder}")
    return folder / f"{torch.__version__}-{digest}.so"


def is_alone(gradient: torch.Tensor) -> bool:
    """Returns whether no other tensor uses the gradient's memory.

    Autograd may have taken over memory that the rest of the backward pass still reads: the gradient of
    `parameter.unsqueeze(0)`, say, which is that of a sum's other addend, too.
    """
    # The gradient, and the storage as an object of Python.
    return _use_count is not None and _use_count(gradient.untyped_storage()._cdata) == 2
