"""The program that reports on one host. It imports no TensorFlow itself."""

from __future__ import annotations

import os
import socket
import sys

from smddprun import environment
from smddprun.check import findings, libraries, machine, network, versions
from smddprun.check.findings import Report

KIND = "report"
# The limit of the programs that this one starts, in seconds.
LIMIT = "SMDDPRUN_CHECK_LIMIT"


def report() -> Report:
    """Looks at this host."""
    limit = float(os.environ.get(LIMIT, "60"))
    several_hosts = environment.outer_launcher(os.environ) is not None
    found, known = versions.find()
    more, more_known = libraries.find(os.environ, several_hosts, limit)
    found += more
    found += machine.find(os.environ)
    found.append(network.find(several_hosts))
    return Report(socket.gethostname(), tuple(found), {**known, **more_known})


def main() -> int:
    """Writes the report."""
    sys.stdout.write(findings.encode(KIND, report()))
    return 0
