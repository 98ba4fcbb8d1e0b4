"""Starts the programs of `smddprun --check`, with a time limit for each."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

import smddprun
from smddprun import mpi, signals
from smddprun.check import findings
from smddprun.hosts import Host
from smddprun.options import Options

_FOLDER = str(pathlib.Path(smddprun.__file__).resolve().parent.parent)
# The working folder may be the source tree of tf_smddp, which has no compiled library; so it is left out.
_START = (
    "import importlib, sys; sys.path[:] = [each for each in sys.path if each]; sys.path.append({folder!r}); "
    "sys.exit(importlib.import_module({module!r}).main())"
)
# How long a program that is told to end may take.
_ENDING_SECONDS = 10.0
# MPI's launcher has this time to end the ranks, beyond the limit.
_LAUNCHER_SECONDS = 10.0
_HOSTS_AT_ONCE = 8
# The last line of a traceback, which launchers may have tagged.
_ERROR = re.compile(r"(?<![\w.])[\w.]*(?:Error|Exception): .*")
# TensorFlow's builds for GPUs write such lines as errors at each start, up to 2.17.
_NOISE = re.compile(r"Unable to register cu\w+ factory")
_FIRST_LINES, _LAST_LINES = 6, 8


def words_of(module: str) -> list[str]:
    """Returns the words that run `main` of a module of smddprun, as 'smddprun.…', in a Python like this."""
    return [sys.executable, "-c", _START.format(folder=_FOLDER, module=module)]


_end_with_parent = functools.partial(signals.end_with_parent, signal.SIGTERM)


def _lead_a_group() -> None:
    os.setpgid(0, 0)
    _end_with_parent()


class Ended(NamedTuple):
    """How a program has ended. `code` is None if it took too long, and was ended."""

    code: int | None
    output: str
    errors: str

    def why(self, limit: float) -> str:
        """Says in a few words how it failed."""
        if self.code is None:
            return f"it had not ended after {limit:g} s"
        return f"exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"

    def lines(self) -> list[str]:
        """All that it has written for a person, stderr first, without empty lines and TensorFlow's noise."""
        lines = (self.errors + "\n" + self.output).splitlines()
        shown = (line.rstrip() for line in lines if findings.MARK not in line and not _NOISE.search(line))
        return [line for line in shown if line]

    def excerpt(self) -> str:
        """The lines that a person needs: the last error of Python, or else its first and last lines."""
        lines = self.lines()
        errors = [match.group() for match in map(_ERROR.search, lines) if match]
        if errors:
            return errors[-1]
        if len(lines) > _FIRST_LINES + _LAST_LINES:
            lines = [*lines[:_FIRST_LINES], "...", *lines[-_LAST_LINES:]]
        return "\n".join(f"| {line}" for line in lines)


class Program:
    """A running program. Its output goes to files: a pipe would be held open by what it leaves behind."""

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], limit: float, as_group: bool = False
    ) -> None:
        """Starts it.

        Args:
          words: the program and its arguments.
          environ: its environment.
          limit: in seconds from now; a program that takes longer is ended.
          as_group: whether the programs that it starts are ended with it. It cannot ask on the terminal then.

        Raises:
          OSError: it cannot be started.
        """
        self._limit = limit
        self._as_group = as_group
        self._ends_at = time.monotonic() + limit
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed in `finish` and `end`
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                words,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
                preexec_fn=_lead_a_group if as_group else _end_with_parent,
            )
        except OSError:
            self._close()
            raise

    def finish(self) -> Ended:
        """Waits for its end, and ends it at the limit."""
        code: int | None
        try:
            code = self._process.wait(max(0.0, self._ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._end_process()
            code = None
        ended = Ended(code, _text(self._output), _text(self._errors))
        self._close()
        return ended

    def end(self) -> None:
        """Ends it, if it has not ended; for a check that is given up."""
        self._end_process()
        self._close()

    def _end_process(self) -> None:
        if self._process.poll() is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        if self._as_group:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def _close(self) -> None:
        self._output.close()
        self._errors.close()


def run(words: Sequence[str], environ: Mapping[str, str], limit: float, as_group: bool = False) -> Ended:
    """Runs a program to its end; one that cannot be started has exit code 127, and its error says why.

    A signal that ends this process by an exception ends the program first.
    """
    try:
        program = Program(words, environ, limit, as_group)
    except OSError as error:
        return Ended(127, "", f"{words[0]}: {error.strerror}")
    try:
        return program.finish()
    except BaseException:
        program.end()
        raise


def run_on_each(
    launcher: tuple[str, str],
    named: Sequence[Host],
    environ: Mapping[str, str],
    words: Sequence[str],
    limit: float,
) -> list[Ended]:
    """Runs a program on each host, as a job of its own, so that one that fails is known by name.

    Args:
      launcher: what `mpi.find_launcher` returns.
      named: the hosts.
      environ: with the ways to the hosts.
      words: the program and its arguments.
      limit: for each, in seconds.
    """
    chosen = Options(tag_output=False, timeout=limit)
    final = mpi.launch_environment(launcher[1], chosen, environ)
    ended: list[Ended] = []
    for begin in range(0, len(named), _HOSTS_AT_ONCE):
        running: list[Program] = []
        try:
            for host in named[begin : begin + _HOSTS_AT_ONCE]:
                launch = mpi.launch_words(*launcher, [Host(host.name, 1)], chosen, environ, words)
                running.append(Program(launch, final, limit + _LAUNCHER_SECONDS))
            ended += [program.finish() for program in running]
        except BaseException:
            for program in running:
                program.end()
            raise
    return ended


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
