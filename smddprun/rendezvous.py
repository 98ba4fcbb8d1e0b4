"""The private directory in which the ranks of this host find each other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

# A unix socket's path must fit into 107 bytes, and the engine puts one with a short name into the directory.
_MAX_SOCKET_PATH = 107
_SOCKET_NAME_BYTES = 16
_REMEDY = "set SMDDP_TMPDIR to a short path of a directory that you may write to, such as /tmp"


class RendezvousError(Exception):
    """The directory can't be made or removed; the text says why and what to do."""


def choose(environ: Mapping[str, str], token: str) -> str:
    """The path for a job: `smddp-<token>` in $SMDDP_TMPDIR, else $TMPDIR, else /tmp. Makes nothing.

    Args:
      environ: the launcher's environment.
      token: a random text.

    Returns:
      An absolute path.

    Raises:
      RendezvousError: the path is too long for a socket in it.
    """
    base, origin = _base(environ)
    path = os.path.join(base, f"smddp-{token}")
    length = len(os.fsencode(path)) + 1 + _SOCKET_NAME_BYTES
    if length > _MAX_SOCKET_PATH:
        raise RendezvousError(
            f"{origin} is too long for a unix socket in it ({length} bytes, {_MAX_SOCKET_PATH} at most); "
            + _REMEDY
        )
    return path


def create(path: str) -> None:
    """Makes the directory, mode 0700. One that exists is an error: it is never shared.

    Raises:
      RendezvousError: it can't be made.
    """
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise RendezvousError(f"can't make the directory {path}: {error.strerror}; {_REMEDY}") from error


def remove(path: str) -> None:
    """Removes the directory and what a rank that died too early has left in it.

    The engine removes it as soon as all ranks have connected, so often it is gone already.

    Raises:
      RendezvousError: it can't be removed whole.
    """
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        raise RendezvousError(f"can't remove all of the directory {path}; look what is in it, and remove it")


def _base(environ: Mapping[str, str]) -> tuple[str, str]:
    for name in ("SMDDP_TMPDIR", "TMPDIR"):
        if environ.get(name):
            return os.path.abspath(environ[name]), f"{name}={environ[name]}"
    return "/tmp", "/tmp"
