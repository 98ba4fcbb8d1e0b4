"""The figures of stats() for Prometheus: a page of each rank on the loopback interface, off by default.

`SMDDP_METRICS_PORT=9400` makes the rank with local rank 0 answer at http://127.0.0.1:9400/metrics, the next
one at port 9401, and so on. Other hosts cannot read it; a Prometheus or an agent on this host does.

Each user of the host may connect. So one thread serves one connection at a time, and not for long: more of
them would take descriptors from the training.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import sys
import threading
from typing import Any, Dict, Iterator, Optional

from smddp import runtime
from smddp.watching import stats

PORT = "SMDDP_METRICS_PORT"
_LAST_PORT = 65535
_LONGEST_SECONDS = 5.0
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_OF_SETS = {
    "steps": "Completed groups of several tensors, such as the gradients of a step.",
    "last_steps": "The steps in which this rank was the last to arrive.",
    "blocked_seconds": "The time in which this rank could only wait for collectives.",
}
_ARENA = {
    "arena_bytes": "The maximum size of this rank's shared memory.",
    "arena_used_bytes": "The bytes of all tensors in it.",
    "arena_peak_bytes": "The maximum of the bytes in use so far.",
}
_OF_COLLECTIVES = {
    "calls": "Completed calls.",
    "errors": "Calls that have ended with an error.",
    "bytes": "Bytes of this rank's inputs.",
    "staged_bytes": "The part of the bytes that was copied through windows.",
    "nccl_bytes": "The part of the bytes that NCCL has moved between GPUs.",
    "in_place_bytes": "The part of the bytes whose result has replaced the input.",
    "small_calls": "Calls without a batch.",
    "waiting_seconds": "The sum of the waiting times of all calls, which overlap.",
    "moving_seconds": "The time spent reading, combining and writing data.",
}

_server: Optional[http.server.HTTPServer] = None


def text_of(figures: Dict[str, Any]) -> str:
    """Returns what stats() has returned for this rank, in Prometheus' text format."""
    return "".join(f"{line}\n" for line in _lines(figures))


def _lines(figures: Dict[str, Any]) -> Iterator[str]:
    rank = figures["rank"]
    collectives = figures["collectives"]
    for name in next(iter(collectives.values())):
        yield from _header(f"smddp_{name}_total", "counter", _OF_COLLECTIVES[name])
        for kind, values in collectives.items():
            yield f'smddp_{name}_total{{rank="{rank}",collective="{kind}"}} {values[name]}'
    for name, meaning in _OF_SETS.items():
        yield from _header(f"smddp_{name}_total", "counter", meaning)
        for values in figures["process_sets"]:
            yield f'smddp_{name}_total{{rank="{rank}",process_set="{values["id"]}"}} {values[name]}'
    for name, meaning in _ARENA.items():
        yield from _header(f"smddp_{name}", "gauge", meaning)
        yield f'smddp_{name}{{rank="{rank}"}} {figures[name]}'


def _header(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


class _Server(http.server.HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Writes what is a mistake of ours, and nothing where the other side has gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Page(http.server.BaseHTTPRequestHandler):
    def handle(self) -> None:
        """Answers one request, which takes a few seconds at most, however slowly it comes."""
        end = threading.Timer(_LONGEST_SECONDS, self._end)
        end.daemon = True
        end.start()
        try:
            super().handle()
        finally:
            end.cancel()

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # it has ended at this moment
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        host = self.headers.get("Host", _HOSTS[0])
        if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:  # a browser's page of another host
            self.send_error(403, "the figures are for 127.0.0.1")
            return
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "the figures are at /metrics")
            return
        try:
            content = text_of(stats()).encode()
        except RuntimeError as error:  # the job ends at this moment
            self.send_error(503, str(error).partition("\n")[0])
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing: a line for each request would fill the job's output."""


def _port() -> int:
    """Returns this rank's port; 0 if there is to be no page."""
    text = os.environ.get(PORT, "")
    if text in ("", "0"):
        return 0
    last_first = _LAST_PORT - runtime.local_size() + 1
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= last_first:
        raise RuntimeError(
            f"{PORT}={text}: give a port from 1 to {last_first}, as each of the "
            f"{runtime.local_size()} ranks of this host has one, from this number on; or 0 for none."
        )
    return int(text) + runtime.local_rank()


def _after_init() -> None:
    global _server
    port = _port()
    if not port:
        return
    try:
        _server = _Server(("127.0.0.1", port), _Page)
    except OSError as error:
        raise RuntimeError(
            f"{PORT}={os.environ[PORT]}: rank {runtime.rank()} cannot listen at 127.0.0.1:{port}: "
            f"{error.strerror}. Choose a number from which {runtime.local_size()} ports are free."
        ) from error
    threading.Thread(target=_server.serve_forever, name="smddp-metrics", daemon=True).start()


def _before_shutdown() -> None:
    global _server
    if _server is not None:
        _server.shutdown()
        _server.server_close()
        _server = None


runtime.after_init.append(_after_init)
runtime.before_shutdown.append(_before_shutdown)
