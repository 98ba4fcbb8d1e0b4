"""Finds the op library, refuses one that was built for another TensorFlow, loads it, and has smddp use it.

Place in the stack: below everything else in the package but tensorflow_private.py; the only module that
knows where the library lies. Not here: making the ops (the module of each collective).

TensorFlow's C++ ABI changes with its minor version, and a library built for another one crashes or misreads
memory instead of failing. So the check comes before the library is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import pathlib
import warnings
from typing import Any, Dict, Tuple

import tensorflow as tf

from smddp import library, runtime, settings, uncaught
from tf_smddp._base import tensorflow_private

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def locate(package: pathlib.Path = _PACKAGE) -> pathlib.Path:
    """Returns the path of the op library in the folder `package`.

    Raises:
        ImportError: It is not there; the message tells why.
    """
    path = package / "_smddp_ops.so"
    if path.is_file() and (package / "_build_info.py").is_file():
        return path
    if (package.parent / "setup.py").is_file():
        raise ImportError(
            f"tf_smddp was imported from its source tree, {package}, which holds no compiled op library. "
            f"Install it with `pip install {package.parent}` and start Python in another folder."
        )
    if not (package / "_build_info.py").is_file() and (package.parent / "smddp" / "libsmddp.so").is_file():
        raise ImportError(
            "tf_smddp was installed where PyTorch was, and no TensorFlow, so its ops were not built. "
            "Install it again: pip install --force-reinstall --no-deps --no-cache-dir <source of tf_smddp>"
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
        kernels/process/smddp.h and kernels/tf/c_api.cc. It is the engine's library of this process.

    Raises:
        ImportError: There is no library, it was built for another minor version of TensorFlow, or this
            process uses another one already.
    """
    path = locate()
    check(importlib.import_module("tf_smddp._build_info").TF_VERSION, tf.__version__)
    try:
        library.use_library(path, "tf_smddp")
    except RuntimeError as error:
        raise ImportError(str(error)) from error
    ops = tf.load_op_library(str(path))  # first: it finds the ops that are registered while it loads
    uncaught.know_front_end(str(_PACKAGE), tf.errors.OpError)
    tensorflow_private.never_convert("smddp", "tf_smddp")
    engine = library.engine()
    engine.tf_smddp_eager_ops.restype = engine.tf_smddp_next_ticket.restype = ctypes.c_uint64
    runtime.before_init.append(_before_init)
    runtime.after_init.append(_after_init)
    runtime.at_shutdown.append(engine.tf_smddp_after_shutdown)
    return ops, engine


def _before_init() -> None:
    if tensorflow_private.ops_are_deterministic():
        os.environ.setdefault(settings.DETERMINISTIC, "1")


def _after_init() -> None:
    load()[1].tf_smddp_after_init()
    config = os.environ.get("TF_CONFIG", "")
    # A job with parameter servers needs it.
    if runtime.rank() == 0 and config and '"ps"' not in config:
        warnings.warn(
            "TF_CONFIG is set. tf_smddp does not read it, since the launcher says which ranks there are. "
            "tf.distribute and tf.estimator do: an estimator then starts servers of its own, or waits for "
            "other workers. Unset it for this job.",
            stacklevel=3,
        )


@functools.cache
def op_definitions() -> Dict[str, Any]:
    """The definitions (OpDef) of the library's ops, by name."""
    names = [name for name in vars(load()[0]) if name.startswith("Smddp")]
    return {name: tensorflow_private.op_definition(name) for name in names}


def types_of(op: str, attribute: str) -> Tuple[tf.DType, ...]:
    """The types that an op's type attribute admits."""
    (definition,) = (attr for attr in op_definitions()[op].attr if attr.name == attribute)
    return tuple(tf.as_dtype(number) for number in definition.allowed_values.list.type)
