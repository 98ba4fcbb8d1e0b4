"""The guard: a small process that outlives the launcher, and clears up if the launcher could not.

The kernel kills the ranks when the launcher dies (see ranks.py), but not what the ranks have started. The
guard waits for the end of a pipe that only the launcher has open. If the launcher has not said "done" by
then, the guard ends all processes of the job and removes the rendezvous directory. It is a fork of the
launcher in a session of its own (Ctrl-C doesn't reach it), without the job's id in its environment (no sweep
finds it, and that of a job around this one lets it be), and with none of the launcher's descriptors
(`smddprun … | tee` doesn't wait for it).
"""

from __future__ import annotations

import os
import signal
import time
import traceback

from smddprun import leftovers, rendezvous, signals
from smddprun.escalation import Escalation

_DONE = b"done\n"


class Guard:
    """The launcher's side of the guard."""

    def __init__(self, job_id: str, directory: str) -> None:
        """Forks the guard. Before any rank, and while this process has one thread only.

        Args:
          job_id: the processes to end.
          directory: the rendezvous directory to remove; need not exist yet.

        Raises:
          OSError: no more processes, or descriptors.
        """
        read_end, self._write_end = os.pipe()
        ready, is_ready = os.pipe()
        # Until the guard ignores them: they would reach this process twice, through the pipe that it has.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _run_and_exit(read_end, job_id, directory)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(read_end)
        # Who kills this process's group from here on does not kill the guard.
        os.close(is_ready)
        os.read(ready, 1)
        os.close(ready)

    def add_rank(self, pid: int) -> None:
        """Tells the guard of a rank: its pid is its session's id.

        The rank itself calls it before it runs anything, so that the guard never knows of one too late.
        """
        self._tell(f"{pid}\n".encode())

    def dismiss(self) -> None:
        """All is cleared up; returns when the guard has ended."""
        self._tell(_DONE)
        os.close(self._write_end)
        os.waitpid(self._pid, 0)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._write_end, line)
        except BrokenPipeError:
            return  # someone has killed the guard; the launcher alone does as long as it lives


def _run_and_exit(read_end: int, job_id: str, directory: str) -> None:
    try:
        _run(read_end, job_id, directory)
    except BaseException:  # nobody else could report it, and it must not run on into the launcher's code
        traceback.print_exc()
    finally:
        os._exit(0)


def _run(read_end: int, job_id: str, directory: str) -> None:
    os.setsid()
    signals.ignore_all()
    with open("/proc/self/comm", "w") as name:
        name.write(leftovers.GUARD_NAME)
    os.chdir("/")
    _keep_only(read_end)  # this closes `is_ready`, too
    told = b""
    while chunk := os.read(read_end, 4096):
        told += chunk
    if told.endswith(_DONE):
        return
    sessions = {int(line) for line in told.split()}
    escalation = Escalation(after_terminate=2.0)
    escalation.begin(time.monotonic(), 0.0)
    sweep = leftovers.Sweep(job_id, sessions, escalation)
    while not sweep.turn(now := time.monotonic()):
        time.sleep(sweep.next_look - now)
    rendezvous.remove(directory)


def _keep_only(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != fd:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own descriptor, closed already
