"""Finds the op library, refuses one that was built for another TensorFlow, and loads it.

Place in the stack: below everything else in the package but _tensorflow_private.py; the only module that
knows where the library lies. Not here: making the ops (the module of each collective), and the calls of the C
entry points (_runtime.py and others).

TensorFlow's C++ ABI changes with its minor version, and a library built for another one crashes or misreads
memory instead of failing. So the check comes before the library is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import pathlib
from typing import Any, Dict, Tuple

import tensorflow as tf

from tf_smddp import _tensorflow_private

_PACKAGE = pathlib.Path(__file__).resolve().parent


def locate(package: pathlib.Path = _PACKAGE) -> pathlib.Path:
    """Returns the path of the op library in the folder `package`.

    Raises:
        ImportError: It is not there; the message tells a source tree from a broken installation.
    """
    path = package / "_smddp_ops.so"
    if path.is_file() and (package / "_build_info.py").is_file():
        return path
    if (package.parent / "setup.py").is_file():
        raise ImportError(
            f"tf_smddp was imported from its source tree, {package}, which holds no compiled op library. "
            f"Install it with `pip install {package.parent}` and start Python in another folder."
        )
    raise ImportError(
        f"the op library of tf_smddp is missing: {path}. The installation is incomplete. Reinstall it: "
        "pip install --force-reinstall --no-deps --no-cache-dir <source or wheel of tf_smddp>"
    )


def check(built: str, running: str) -> None:
    """Checks that a library built against TensorFlow `built` can be loaded into TensorFlow `running`.

    Raises:
        ImportError: Their minor versions differ; the message names both versions and the remedy.
    """
    if built.split(".")[:2] == running.split(".")[:2]:
        return
    minor = ".".join(built.split(".")[:2])
    raise ImportError(
        f"tf_smddp was built against TensorFlow {built}, but TensorFlow {running} is running, and their C++ "
        "ABIs differ. Build it for this one: "
        "pip install --force-reinstall --no-deps --no-cache-dir <source of tf_smddp>. "
        f'Or go back to the other TensorFlow: pip install "tensorflow=={minor}.*"'
    )


@functools.cache
def load() -> Tuple[Any, ctypes.CDLL]:
    """Loads the op library, once in a process.

    Returns:
        The module with the ops as Python functions, and the same library for ctypes, with the functions of
        kernels/process/smddp.h and kernels/tf/c_api.cc.

    Raises:
        ImportError: There is no library, or it was built for another minor version of TensorFlow.
    """
    path = locate()
    check(importlib.import_module("tf_smddp._build_info").TF_VERSION, tf.__version__)
    ops = tf.load_op_library(str(path))  # first: it finds the ops that are registered while it loads
    library = ctypes.CDLL(str(path))
    library.smddp_last_error.restype = ctypes.c_char_p
    return ops, library


def check_result(result: int) -> None:
    """Raises what the last function of the C API in this thread has reported, unless `result` is 0.

    Raises:
        RuntimeError: It has failed; the text says why.
    """
    if result != 0:
        raise RuntimeError(load()[1].smddp_last_error().decode("utf-8", errors="replace"))


@functools.cache
def op_definitions() -> Dict[str, Any]:
    """The definitions (OpDef) of the library's ops, by name."""
    names = [name for name in vars(load()[0]) if name.startswith("Smddp")]
    return {name: _tensorflow_private.op_definition(name) for name in names}


def nccl_library() -> str:
    """The path of NCCL in the package nvidia-nccl-cu*, if that is installed, else an empty text."""
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return ""
    folders = package.submodule_search_locations if package else None
    paths = [pathlib.Path(folder) / "lib" / "libnccl.so.2" for folder in folders or []]
    return next((str(path) for path in paths if path.is_file()), "")


def types_of(op: str, attribute: str) -> Tuple[tf.DType, ...]:
    """The types that an op's type attribute admits."""
    (definition,) = (attr for attr in op_definitions()[op].attr if attr.name == attribute)
    return tuple(tf.as_dtype(number) for number in definition.allowed_values.list.type)
