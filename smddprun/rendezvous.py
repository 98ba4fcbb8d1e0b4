"""Where the ranks of a job find each other: a private directory, and a port for those that use torch.

In the directory the ranks of this host meet, and the launcher's FIFO is. It is there until the job has ended,
so nobody else can make one of its name. The engine removes the inner directory, where the ranks meet, as soon
as all have.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping

# The path of a unix socket has at most 107 bytes. The engine creates a socket with a short name in the
# directory.
_MAX_SOCKET_PATH = 107
_SOCKET_NAME_BYTES = 16
_MEETING = "r"
_FIFO = "notes"
_REMEDY = "set SMDDP_TMPDIR to a short path of a directory that you may write to, such as /tmp"


class RendezvousError(Exception):
    """The directory cannot be created or removed. The text names the cause and the remedy."""


def choose(environ: Mapping[str, str], token: str) -> str:
    """Returns the path for a job: `smddp-<token>` in $SMDDP_TMPDIR, else in $TMPDIR, else in /tmp.

    It does not create the directory.

    Args:
      environ: the launcher's environment.
      token: a random text.

    Returns:
      An absolute path.

    Raises:
      RendezvousError: the path is too long for a unix socket.
    """
    base, origin = _base(environ)
    path = os.path.join(base, f"smddp-{token}")
    length = len(os.fsencode(meeting(path))) + 1 + _SOCKET_NAME_BYTES
    if length > _MAX_SOCKET_PATH:
        raise RendezvousError(
            f"{origin} is too long for a unix socket in it ({length} bytes, {_MAX_SOCKET_PATH} at most); "
            + _REMEDY
        )
    return path


def meeting(path: str) -> str:
    """Returns the directory in the job's directory `path` in which the ranks meet."""
    return os.path.join(path, _MEETING)


def fifo(path: str) -> str:
    """Returns the FIFO in the job's directory `path`; see rank_notes.py."""
    return os.path.join(path, _FIFO)


def create(path: str) -> None:
    """Creates the directory, with mode 0700, and what is in it.

    Raises:
      RendezvousError: it exists already, or cannot be created.
    """
    try:
        os.mkdir(path, 0o700)
        os.mkdir(meeting(path), 0o700)
        os.mkfifo(fifo(path), 0o600)
    except OSError as error:
        raise RendezvousError(f"can't create the directory {path}: {error.strerror}; {_REMEDY}") from error


def remove(path: str) -> None:
    """Removes the directory with its contents.

    Raises:
      RendezvousError: it cannot be removed.
    """
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        raise RendezvousError(f"can't remove the directory {path}; see what is in it, and remove it by hand")


def reserve_port() -> socket.socket:
    """Returns a socket that keeps a free TCP port from all others, at any address, until it is closed.

    Only a process that asks for this very port, with SO_REUSEADDR, may listen there: torch's store does so.
    The kernel gives it to no other one meanwhile, also for connections. The socket does not listen.

    Raises:
      OSError: the system has no socket, or no port.
    """
    both = socket.has_dualstack_ipv6()
    port = socket.socket(socket.AF_INET6 if both else socket.AF_INET)
    if both:
        port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("", 0))
    return port


def _base(environ: Mapping[str, str]) -> tuple[str, str]:
    for name in ("SMDDP_TMPDIR", "TMPDIR"):
        if environ.get(name):
            return os.path.abspath(environ[name]), f"{name}={environ[name]}"
    return "/tmp", "/tmp"
