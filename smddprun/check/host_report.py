"""The program that reports on one host."""

from __future__ import annotations

import os
import socket

from smddprun import environment
from smddprun.check import findings, gpu_report, libraries, machine, versions
from smddprun.check.findings import Report

KIND = "report"
# Each part may end or block the program: the second imports TensorFlow, the third has CUDA's driver begin.
PARTS = 3


def main() -> int:
    """Writes the parts of the report."""
    found, known = versions.find()
    _write(Report("", (*found, libraries.launcher(os.environ), *machine.find(os.environ)), known))
    # TensorFlow then says why it registers no GPU, and names each library that it misses.
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_VMODULE="dso_loader=1")
    found, known, nccl = libraries.find(os.environ, environment.outer_launcher(os.environ) is not None)
    _write(Report("", tuple(found), known))
    if nccl is None:  # no job can start, and the reason has been said
        _write(Report("", (), {}))
    else:
        found, num_gpus, joined = gpu_report.find(os.environ, nccl)
        _write(Report("", tuple(found), {}, num_gpus, joined))
    return 0


def _write(report: Report) -> None:
    own = report._replace(host=socket.gethostname())
    os.write(1, findings.encode(KIND, own).encode())
