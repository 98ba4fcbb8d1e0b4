"""The main loop: one thread starts the ranks of this host, and reacts to all that happens to them.

It sleeps in epoll until a rank writes or ends, a signal arrives, an output can take more, or a deadline
passes, so an idle job costs no CPU. It never blocks in anything else: the outputs have their own threads.
"""

from __future__ import annotations

import functools
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from smddprun import environment, summary
from smddprun.command import NOT_EXECUTABLE
from smddprun.escalation import SIGNALS, Escalation, Step
from smddprun.guard import Guard
from smddprun.leftovers import Sweep, describe, listed
from smddprun.lines import Tail
from smddprun.options import GRACE_SECONDS, Options
from smddprun.outputs import LogError, Outputs
from smddprun.rank_notes import JOINS, RankNotes
from smddprun.ranks import Rank, signal_name
from smddprun.signals import STOPPING, SignalPipe
from smddprun.sinks import LAUNCHER, PlainSink

# After a signal to stop, ranks may be saving a checkpoint. They have at least this long after the first of
# them has ended.
STOP_GRACE_SECONDS = 30.0
# Helpers of the ranks (a `tee`, a resource tracker) usually end by themselves within this time.
SETTLE_SECONDS = 1.0
# A rank that has said that it leaves has this time for it before it is ended: on a busy machine the teardown
# of TensorFlow takes many seconds, and a rank that is ended meanwhile loses its exit code.
LEAVING_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.5
# epoll takes its timeout as milliseconds in 32 bits.
LONGEST_SLEEP_SECONDS = 3600.0
# One Ctrl-C may arrive twice, from the terminal and from a program that forwards it. Two SIGINTs within this
# time count as one.
SAME_KEYSTROKE_SECONDS = 0.3


class StartError(Exception):
    """A rank cannot be started. The text names the rank, the cause and the remedy."""

    exit_code = NOT_EXECUTABLE


class Job:
    """The ranks of this host, from the start of the first to the end of the last process."""

    def __init__(
        self,
        options: Options,
        job_id: str,
        sinks: Mapping[str, PlainSink],
        signal_pipe: SignalPipe,
        guard: Guard,
        tasks: Sequence[str] = (),
    ) -> None:
        """Creates a job without starting a rank.

        Args:
          options: what the user asked for.
          job_id: the value of SMDDP_JOB_ID.
          sinks: of "stdout" and "stderr".
          signal_pipe: already installed.
          guard: each new rank reports itself to it.
          tasks: the names of the ranks in a job with parameter servers.
        """
        self._options = options
        self._job_id = job_id
        self._sinks = sinks
        self._signal_pipe = signal_pipe
        self._guard = guard
        self._tasks = tasks
        self._num_ranks = options.num_ranks or 1
        self._selector = selectors.DefaultSelector()
        self._selector.register(signal_pipe.fd, selectors.EVENT_READ, self._on_signals)
        self._outputs = Outputs(
            self._selector,
            sinks,
            self._num_ranks,
            options.tag_output,
            options.output_dir,
            self.say,
            options.quiet,
        )
        self._ranks: list[Rank] = []
        self._left: list[Rank] = []  # in the order in which they left the job
        self._joined: set[int] = set()  # the ranks that have called init()
        self._notes: RankNotes | None = None
        self._given_up = False
        self._escalation = Escalation()
        self._started_at = time.monotonic()
        self._ends_at = math.inf if options.timeout is None else self._started_at + options.timeout
        self._timed_out = False
        self._stopped_by = 0
        self._interrupted_at: float | None = None

    def say(self, text: str) -> None:
        """Writes a message of the launcher to stderr."""
        self._sinks["stderr"].message(f"smddprun: {text}")

    def listen(self, notes: RankNotes) -> None:
        """Reads what the ranks tell, until `close`, which closes it. Call it before `run`."""
        self._notes = notes
        self._selector.register(notes.fd, selectors.EVENT_READ, self._on_notes)

    def run(self, command: Sequence[str], environ: Mapping[str, str], rendezvous: str) -> int:
        """Starts the ranks and returns when no process of the job is left (but for the ranks' zombies).

        Args:
          command: the words to execute.
          environ: the part of the environment that is the same on all ranks.
          rendezvous: the directory in which they meet.

        Returns:
          The launcher's exit code.

        Raises:
          StartError, LogError: a rank cannot be started. Those that were started before have been killed.
        """
        try:
            for place in environment.places_on_this_host(self._num_ranks, self._tasks):
                self._start(
                    place, command, environment.rank_environment(environ, place, rendezvous, self._job_id)
                )
        except (StartError, LogError):
            self._escalation.hasten(time.monotonic(), Step.KILL)
            self._until_all_ended()
            raise
        self._until_all_ended()
        outcome = self._outcome()
        for line in summary.lines(outcome):
            self._sinks["stderr"].block(LAUNCHER, line + b"\n")
        if (
            outcome.exit_code == 0
            and self._num_ranks > 1
            and not self._joined
            and not self._tasks
            and _is_python(command[0])
            and not self._options.quiet
        ):
            self.say("note: no rank has joined the job, by tf_smddp.init() or by torch's backend smddp")
        if outcome.exit_code == 0 and self._options.verbose:
            self.say(f"{self._num_ranks} ranks succeeded after {time.monotonic() - self._started_at:.1f} s")
        return outcome.exit_code

    def close(self) -> bool:
        """Reaps the ranks, and waits until all output has been written.

        Returns:
          False if output was lost. Output that its reader no longer wants does not count.
        """
        for rank in self._ranks:
            rank.reap()
        written = self._outputs.finish()
        self._selector.close()
        if self._notes is not None:
            self._notes.close()
        return written

    def _start(self, place: environment.Place, command: Sequence[str], environ: Mapping[str, str]) -> None:
        rank = Rank(place, Tail())
        ends: list[int] = []
        try:
            for name in ("stdout", "stderr"):
                ends.append(self._outputs.open(place, name, rank.tail))
            rank.start(command, environ, _stdin(place.local_rank), ends[0], ends[1], self._guard.add_rank)
        except OSError as error:
            raise StartError(
                f"{place.name} of {place.size} can't be started: {error.strerror}: "
                f"{error.filename or command[0]}; check the file (does a script begin with #! and "
                "its interpreter?), and `ulimit -n -u`"
            ) from error
        finally:
            for fd in ends:
                os.close(fd)
        self._ranks.append(rank)
        if rank.pidfd is not None:
            self._selector.register(rank.pidfd, selectors.EVENT_READ, functools.partial(self._on_end, rank))
        if self._options.verbose:
            self.say(f"{place.name} is pid {rank.pid}")

    def _until_all_ended(self) -> None:
        self._outputs.start()
        self._poll_ranks_without_pidfd()
        while not self._given_up and any(rank.running for rank in self._ranks):
            self._turn(self._next_deadline())
            self._check_limits()
        self._sweep()
        self._outputs.drain()

    def _turn(self, deadline: float | None) -> None:
        timeout = (
            None if deadline is None else min(max(0.0, deadline - time.monotonic()), LONGEST_SLEEP_SECONDS)
        )
        # epoll reports descriptors in the order in which they became ready, so the first rank to end is
        # handled first.
        for key, _ in self._selector.select(timeout):
            key.data()
        self._outputs.turn()

    def _next_deadline(self) -> float | None:
        deadlines = [self._escalation.deadline]
        if not self._timed_out and self._ends_at < math.inf:
            deadlines.append(self._ends_at)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _check_limits(self) -> None:
        now = time.monotonic()
        if not self._timed_out and any(
            rank.running and rank.left_at is not None and now < rank.left_at + LEAVING_SECONDS
            for rank in self._ranks
        ):
            self._escalation.postpone(now, _LOOK_AGAIN_SECONDS)
        if not self._timed_out and now >= self._ends_at:
            self._timed_out = True
            self._escalation.hasten(now, Step.TERMINATE)
        step = self._escalation.due(now)
        if step is Step.GIVE_UP:
            self._given_up = True
        elif step is not None:
            self._end_ranks(SIGNALS[step])

    def _end_ranks(self, number: int) -> None:
        running = [rank for rank in self._ranks if rank.running]
        for rank in running:
            rank.ended_by = number
        if running and self._options.verbose:
            self.say(f"{signal_name(number)} to {', '.join(rank.place.name for rank in running)}")
        self._send(number)

    def _send(self, number: int) -> None:
        # The groups of ended ranks get it as well, since a killed shell leaves the program that it ran.
        for rank in self._ranks:
            rank.send(number)

    def _on_end(self, rank: Rank) -> None:
        if not rank.running or not rank.poll():
            return
        self._on_notes()  # a rank that has ended because of another has ended after the other's note
        now = time.monotonic()
        self._on_leave(rank, now)
        failed = rank.exit is not None and not rank.exit.ok
        if rank.pidfd is not None:
            self._selector.unregister(rank.pidfd)
        if self._options.verbose:
            self.say(f"{rank.place.name} ended: {rank.exit}")
        grace = GRACE_SECONDS if self._options.grace is None else self._options.grace
        if self._stopped_by:
            self._escalation.begin(now, max(grace, STOP_GRACE_SECONDS))
        elif failed:
            self._escalation.begin(now, grace)

    def _on_leave(self, rank: Rank, now: float) -> None:
        if rank.left_at is None:
            rank.left_at = now
            self._left.append(rank)

    def _on_notes(self) -> None:
        for note in self._notes.read() if self._notes is not None else ():
            if note.what == JOINS:
                self._joined.add(note.rank)
            elif note.rank < len(self._ranks):
                rank = self._ranks[note.rank]
                self._on_leave(rank, time.monotonic())
                rank.because_of = note.because_of

    def _poll_ranks_without_pidfd(self) -> None:
        for rank in self._ranks:
            if rank.pidfd is None:
                self._on_end(rank)

    def _on_signals(self) -> None:
        for number in self._signal_pipe.read():
            if number == signal.SIGCHLD:
                self._poll_ranks_without_pidfd()
            elif number == signal.SIGWINCH:
                self._outputs.window_changed()
                self._send(number)
            elif number == signal.SIGTSTP:
                # The ranks' process groups are orphaned, and the kernel ignores SIGTSTP for orphaned groups.
                self._send(signal.SIGSTOP)
                self._signal_pipe.suspend()
                self._send(signal.SIGCONT)
            elif number in STOPPING:
                self._stop(number)
            else:
                self._send(number)

    def _stop(self, number: int) -> None:
        now = time.monotonic()
        if number == signal.SIGINT and self._interrupted_at is not None:
            if now - self._interrupted_at >= SAME_KEYSTROKE_SECONDS:
                self._escalation.hasten(now, Step.KILL)
            return
        if number == signal.SIGINT:
            self._interrupted_at = now
            self.say("SIGINT is forwarded to the ranks; press Ctrl-C again to kill them")
        self._stopped_by = self._stopped_by or number
        self._send(number)

    def _sweep(self) -> None:
        now = time.monotonic()
        self._escalation = Escalation()
        self._escalation.begin(now, SETTLE_SECONDS)
        if any(rank.ended_by == signal.SIGKILL for rank in self._ranks):
            self._escalation.hasten(now, Step.KILL)
        sweep = Sweep(self._job_id, {rank.pid for rank in self._ranks}, self._escalation)
        while not sweep.turn(time.monotonic()):
            self._turn(sweep.next_turn)
            now = time.monotonic()
            if self._outputs.paused and not self._stopped_by and now < self._ends_at:
                # The helpers may be blocked on output that nobody reads at the moment.
                self._escalation.postpone(now, SETTLE_SECONDS)
        if sweep.signalled:
            count, names = len(sweep.signalled), listed(sweep.signalled)
            self.say(f"ended {count} processes that the ranks left behind: {names}")
        if sweep.remaining:
            self.say(
                f"could not end pid {listed([describe(process) for process in sweep.remaining])}; "
                "they may belong to another user, or be stuck in the kernel: see ps -o pid,user,stat,wchan"
            )

    def _outcome(self) -> summary.Outcome:
        stuck = [rank for rank in self._ranks if rank.left_at is None]
        ended = [
            summary.Ended(
                rank=rank.place.rank,
                pid=rank.pid,
                exit=rank.exit,
                seconds=(rank.left_at or time.monotonic()) - self._started_at,
                ended_by=rank.ended_by,
                tail=rank.tail.lines(),
                because_of=rank.because_of,
                task=rank.place.task,
            )
            for rank in self._left + stuck
        ]
        return summary.Outcome(ended, self._stopped_by, self._options.timeout if self._timed_out else None)


def _is_python(program: str) -> bool:
    """Whether a command is Python, or a script of its: others may not be meant to be a job of tf_smddp."""
    return os.path.basename(program).startswith("python") or program.endswith(".py")


def _stdin(local_rank: int) -> int | None:
    """Returns what `Rank.start` takes as stdin: the launcher's own for rank 0, and /dev/null for the others.

    A rank's session has no controlling terminal, so the kernel does not stop rank 0 when it reads from the
    terminal. While the launcher runs in the background, rank 0 must not read: it would take what the user
    types into the shell.
    """
    if local_rank != 0:
        return subprocess.DEVNULL
    try:
        return None if os.tcgetpgrp(0) == os.getpgrp() else subprocess.DEVNULL
    except OSError:
        return None  # not a terminal, or not our controlling terminal
