"""What the front ends' steps of lease.sh share: lines of the table, and a rank that ends."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

STEP = 50  # of many, in which rank 1 ends
_MOMENT = pathlib.Path(tempfile.gettempdir()) / f"lease-{os.environ['SMDDP_RENDEZVOUS'].replace('/', '_')}"


def write(text):
    """Writes a line at once, and as a whole."""
    os.write(1, f"{text}\n".encode())


def end_rank(how):
    """Ends this rank: kill, stop (for a second, and then kill) or throw."""
    if how == "stop":
        subprocess.Popen(["sh", "-c", f"sleep 1; date +%s.%N > {_MOMENT}; kill -KILL {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    _MOMENT.write_text(str(time.time()))
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("as it should be")


def write_end(error):
    """Writes how long the error of the other rank took, and its text."""
    seconds = time.time() - float(_MOMENT.read_text())
    verdict = "in time" if seconds < 2.5 else "too late"
    write(f"figure: {verdict}, the error came after {seconds:.1f} s: {error[:80]}")
    _MOMENT.unlink()
