"""The program that reports on one host."""

from __future__ import annotations

import os
import socket

from smddprun import environment
from smddprun.check import findings, libraries, machine, versions
from smddprun.check.findings import Finding, Report

KIND = "report"
# It writes a report without TensorFlow first: to import TensorFlow may end or block the program.
PARTS = 2


def main() -> int:
    """Writes the parts of the report."""
    found, known = versions.find()
    _write([*found, libraries.launcher(os.environ), *machine.find(os.environ)], known)
    _write(*libraries.find(os.environ, environment.outer_launcher(os.environ) is not None))
    return 0


def _write(found: list[Finding], known: dict[str, str]) -> None:
    os.write(1, findings.encode(KIND, Report(socket.gethostname(), tuple(found), known)).encode())
