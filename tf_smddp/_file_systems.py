"""File systems that TensorFlow does not have by itself, such as s3://: the package tensorflow-io brings them.

TensorFlow's functions for files (tf.io.gfile) then take such paths as they take others. tensorflow-io is
imported only where a path asks for it.
"""

from __future__ import annotations

import importlib

import tensorflow as tf


def is_remote(path: str) -> bool:
    """Whether the path is of another file system than the one of this host."""
    return "://" in path


def know_file_system(path: str) -> None:
    """Makes TensorFlow know the file system of `path`; does nothing where it does.

    Raises:
        ValueError: no package that is installed has this file system.
    """
    scheme = path.partition("://")[0]
    if not is_remote(path) or scheme in tf.io.gfile.get_registered_schemes():
        return
    reason = "which is not installed"
    try:
        # Where it does not fit TensorFlow, it says so in a warning, and has no file systems.
        version = importlib.import_module("tensorflow_io").__version__
        reason = f"but version {version} does not work with TensorFlow {tf.__version__}"
    except ImportError:
        pass
    if scheme not in tf.io.gfile.get_registered_schemes():
        raise ValueError(
            f"TensorFlow has no file system for {path!r}. The package tensorflow-io has some, {reason}. With "
            "TensorFlow 2.15, run: pip install tensorflow-io==0.34.0. With later versions, mount the store "
            "as a folder."
        )
