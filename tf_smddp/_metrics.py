"""The figures of stats() for Prometheus: a page of each rank on the loopback interface, off by default.

`SMDDP_METRICS_PORT=9400` makes the rank with local rank 0 answer at http://127.0.0.1:9400/metrics, the next
one at port 9401, and so on. Other hosts cannot read it; a Prometheus or an agent on this host does.
"""

from __future__ import annotations

import http.server
import os
import threading
from typing import Any, Dict, Iterator, Optional

from tf_smddp import _runtime
from tf_smddp._stats import stats

PORT = "SMDDP_METRICS_PORT"
_LAST_PORT = 65535
_ARENA = ("arena_bytes", "arena_used_bytes", "arena_peak_bytes")
_OF_SETS = ("steps", "last_steps", "blocked_seconds")

_server: Optional[http.server.ThreadingHTTPServer] = None


def text_of(figures: Dict[str, Any]) -> str:
    """Returns what stats() has returned for this rank, in Prometheus' text format."""
    return "".join(f"{line}\n" for line in _lines(figures))


def _lines(figures: Dict[str, Any]) -> Iterator[str]:
    rank = figures["rank"]
    collectives = figures["collectives"]
    for name in next(iter(collectives.values())):
        yield f"# TYPE smddp_{name}_total counter"
        for kind, values in collectives.items():
            yield f'smddp_{name}_total{{rank="{rank}",collective="{kind}"}} {values[name]}'
    for name in _OF_SETS:
        yield f"# TYPE smddp_{name}_total counter"
        for values in figures["process_sets"]:
            yield f'smddp_{name}_total{{rank="{rank}",process_set="{values["id"]}"}} {values[name]}'
    for name in _ARENA:
        yield f"# TYPE smddp_{name} gauge"
        yield f'smddp_{name}{{rank="{rank}"}} {figures[name]}'


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
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
    last_first = _LAST_PORT - _runtime.local_size() + 1
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= last_first:
        raise RuntimeError(
            f"{PORT}={text}: give a port from 1 to {last_first}, as each of the "
            f"{_runtime.local_size()} ranks of this host has one, from this number on; or 0 for none."
        )
    return int(text) + _runtime.local_rank()


def _after_init() -> None:
    global _server
    port = _port()
    if not port:
        return
    try:
        _server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Page)
    except OSError as error:
        raise RuntimeError(
            f"{PORT}={os.environ[PORT]}: rank {_runtime.rank()} cannot listen at 127.0.0.1:{port}: "
            f"{error.strerror}. Choose a number from which {_runtime.local_size()} ports are free."
        ) from error
    threading.Thread(target=_server.serve_forever, name="smddp-metrics", daemon=True).start()


def _before_shutdown() -> None:
    global _server
    if _server is not None:
        _server.shutdown()
        _server.server_close()
        _server = None


_runtime.after_init.append(_after_init)
_runtime.before_shutdown.append(_before_shutdown)
