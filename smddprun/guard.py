"""The guard: a small process that outlives the launcher, and cleans up if the launcher is killed.

The kernel kills the ranks when the launcher dies (see ranks.py), but not the processes that the ranks have
started. The guard waits for the end of a pipe that only the launcher has open. Unless the launcher has
written "done" before that, the guard ends all processes of the job and removes the rendezvous directory.

The guard is a fork of the launcher:

- It leads its own session, so that Ctrl-C does not reach it.
- It does not have the job's id in its environment, so that no sweep ends it. A sweep of an outer job
  recognises it by its name.
- It closes the launcher's descriptors, so that `smddprun … | tee` does not wait for it.
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
        """Forks the guard. Call it before any rank starts, and while this process has one thread only.

        Args:
          job_id: the id of the job whose processes it ends.
          directory: the rendezvous directory that it removes; it need not exist yet.

        Raises:
          OSError: a limit of processes or descriptors is reached.
        """
        read_end, self._write_end = os.pipe()
        ready, is_ready = os.pipe()
        # Until the guard ignores signals, its copy of the wakeup pipe would report each of them to this
        # process a second time.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _run_and_exit(read_end, job_id, directory)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(read_end)
        # The guard writes nothing: it closes its end when it leads its own session, where a signal to this
        # process's group does not reach it.
        os.close(is_ready)
        os.read(ready, 1)
        os.close(ready)

    def add_rank(self, pid: int) -> None:
        """Reports a rank to the guard. The rank's pid is its session's id.

        The new process itself calls this before it executes the command, so that the guard knows every rank
        that may have started something.
        """
        self._tell(f"{pid}\n".encode())

    def dismiss(self) -> None:
        """Ends the guard, which has nothing left to clean up, and waits for its end."""
        self._tell(_DONE)
        os.close(self._write_end)
        os.waitpid(self._pid, 0)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._write_end, line)
        except BrokenPipeError:
            return  # someone has killed the guard; the launcher works without it


def _run_and_exit(read_end: int, job_id: str, directory: str) -> None:
    try:
        _run(read_end, job_id, directory)
    except BaseException:  # the fork must report any error, and never return into the launcher's code
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
        time.sleep(sweep.next_turn - now)
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
                continue  # it was the descriptor of the listing itself
