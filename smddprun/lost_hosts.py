"""Notices that a host of the job is lost: each host holds a connection to the launcher.

MPI's launchers wait for a host that is cut off for as long as TCP does, a quarter of an hour. Here the first
rank of each host connects to smddprun before it becomes the command, and sends nothing afterwards. The
kernels exchange keepalives. When none comes back, the host has lost its power, its network or its kernel.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence

from smddprun import environment
from smddprun.hosts import Host, address_of, is_this_one

# The address, the port and the token of a start, for smddprun on the hosts. The command does not get it.
VARIABLE = "SMDDP_HOSTS_WATCH"
_DEFAULT_SECONDS = 30.0  # of SMDDP_HOST_TIMEOUT, in kernels/common/config.h
_PROBES = 3
_CONNECT_SECONDS = 10.0
_HELLO_SECONDS = 1.0  # a host says at once who it is
_HELLO_BYTES = 512


class Watch:
    """The launcher's end of the connections."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Opens a TCP port. The time limit is SMDDP_HOST_TIMEOUT, as for the ranks.

        Raises:
          OSError: there is no port or descriptor left.
        """
        try:
            limit = float(environ.get("SMDDP_HOST_TIMEOUT", ""))
        except ValueError:  # not set, or init() refuses it
            limit = 0.0
        self.limit = limit if 0 < limit < 1e6 else _DEFAULT_SECONDS
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._token = ""

    def begin(self) -> None:
        """Begins a start of the job: forgets the hosts of an earlier one."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._drop(key.data[0])
        self._token = os.urandom(16).hex()

    def environ(self, dealt: Sequence[Host]) -> dict[str, str]:
        """Returns what smddprun on the hosts reads."""
        return {VARIABLE: f"{_own_address(dealt)} {self._server.getsockname()[1]} {self._token}"}

    def turn(self, seconds: float) -> str | None:
        """Waits for up to some seconds. Returns the name of a host that is lost, or None."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
                continue
            connection, name = key.data
            lost = False
            try:
                connection.recv(1)  # nothing comes but the end, when the rank has ended
            except OSError:
                lost = True
            self._drop(connection)
            if lost:
                return str(name)
        return None

    def _accept(self) -> None:
        connection = None
        try:
            connection, _ = self._server.accept()
            connection.settimeout(_HELLO_SECONDS)
            token, _, name = connection.recv(_HELLO_BYTES).decode("ascii", errors="replace").partition(" ")
            if token != self._token:
                raise OSError("it is no host of this start")
            pause = max(1, round(self.limit / (_PROBES + 1)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        except OSError:
            if connection is not None:
                connection.close()
        else:
            self._selector.register(connection, selectors.EVENT_READ, (connection, name.strip()))

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def _own_address(dealt: Sequence[Host]) -> str:
    """Returns the address from which this host reaches another one; its name if that cannot be said."""
    with contextlib.suppress(OSError, UnicodeError):
        other = next((host for host in dealt if not is_this_one(host)), dealt[0])
        family, kind, number, _, where = socket.getaddrinfo(address_of(other), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, number) as way:
            way.connect(where)  # sends nothing
            return str(way.getsockname()[0])
    return socket.gethostname()


def hold(environ: MutableMapping[str, str]) -> int | None:
    """Connects the first rank of a host to the launcher, and takes the variable out of its environment.

    Returns:
      The connection's descriptor, which the command inherits by execve; None if there is no connection.
    """
    words = environ.pop(VARIABLE, "").split()
    numbers, _ = environment.numbers_of_launcher(environ)
    if len(words) != 3 or not numbers or numbers[2] != "0":
        return None
    address, port, token = words
    name = socket.gethostname()
    try:
        connection = socket.create_connection((address, int(port)), _CONNECT_SECONDS)
        connection.sendall(f"{token} {name}\n".encode())
    except OSError as error:
        print(
            f"smddprun: note: {name} can't connect to smddprun at {address}, port {port}: {error}; if this "
            "host is cut off, only MPI's launcher will notice, after a quarter of an hour",
            file=sys.stderr,
        )
        return None
    connection.setblocking(True)
    connection.set_inheritable(True)
    return connection.detach()
