"""Other work on the machine, beside which a job is measured: one process that computes all the time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Iterator

# It looks from time to time whether its parent is still there, so that nothing goes on if run.py is killed.
_LOOP = """
import os
while os.getppid() == {parent}:
    for _ in range(1_000_000):
        pass
"""


@contextlib.contextmanager
def busy_loop() -> Iterator[None]:
    """Keeps one core busy while the context is open, with the priority of this process: nice 0 by default."""
    process = subprocess.Popen([sys.executable, "-c", _LOOP.format(parent=os.getpid())])
    try:
        yield
    finally:
        process.kill()
        process.wait()
