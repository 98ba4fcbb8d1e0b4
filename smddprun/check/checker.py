"""Runs `smddprun --check`: a report on each host, and then a self test. docs/launcher.md describes it."""

from __future__ import annotations

import functools
import signal
import socket
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Callable

from smddprun import environment, hosts, mpi
from smddprun.check import findings, gpu_report, host_report, programs, self_tests
from smddprun.check.findings import Finding, Report
from smddprun.options import Options, UsageError

DEFAULT_LIMIT = 180.0
_SEE = "run 'python -c \"{}\"' to see why, and mend that first"
_LOOK = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"


def run(chosen: Options, named: Sequence[hosts.Host], environ: Mapping[str, str]) -> int:
    """Checks this host, or the hosts that were named, and prints what is found.

    Args:
      chosen: the options; --timeout is the limit of each step.
      named: the hosts; none for this one.
      environ: the environment of the ranks.

    Returns:
      The exit code: 0 if there is no problem, else 1.

    Raises:
      UsageError: if a launcher has started this process as a rank.
    """
    rank = environment.outer_launcher(environ)
    if rank is not None:
        raise UsageError(
            f"--check starts ranks by itself, and {rank}={environ[rank]} says that this process is one; run "
            "it outside of mpirun, srun and smddprun"
        )
    previous = signal.signal(signal.SIGTERM, _raise_exit)
    try:
        return _run(chosen, named, environ)
    except BlockingIOError as error:
        _print(f"smddprun: the check cannot start a process: {error.strerror}; look at 'ulimit -u'")
        return 1
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run(chosen: Options, named: Sequence[hosts.Host], environ: Mapping[str, str]) -> int:
    limit = DEFAULT_LIMIT if chosen.timeout is None else chosen.timeout
    environ = {"TF_CPP_MIN_LOG_LEVEL": "2", **environ}
    if not named or (len(named) == 1 and hosts.is_this_one(named[0])):
        reports = [_report_here(environ, limit)]
        problems = _show_reports(reports)
        start = self_tests.on_this_host
        return _conclude(problems + _test(reports, start, environ, limit, chosen.verbose))
    try:
        launcher = mpi.find_launcher(environ)
    except mpi.LauncherError as error:
        problems = _show_reports([_report_here(environ, limit)])
        return _conclude(
            problems + _show([Finding("several hosts", str(error), "have MPI's mpirun or mpiexec in PATH")])
        )
    _print(f"through {launcher[0]} ({launcher[1]})")
    reports = _reports_of(launcher, named, environ, limit)
    problems = _show_reports(reports)
    start = functools.partial(self_tests.on_hosts, launcher, named)
    return _conclude(problems + _test(reports, start, environ, limit, chosen.verbose))


def _test(
    reports: Sequence[Report],
    start: Callable[[int], self_tests.Start],
    environ: Mapping[str, str],
    limit: float,
    verbose: bool,
) -> int:
    """Runs the self test, unless it cannot start. Returns the number of problems.

    It has a rank for each GPU of a host. Without GPUs, it has two ranks, or one on each host.
    """
    stopped = [report.host for report in reports if not report.can_start]
    if stopped:
        return _show([Finding("self test", f"not run, since no job can start on {', '.join(stopped)}")])
    each = min(self_tests.MOST_RANKS, *(report.gpus for report in reports))
    if each * len(reports) < 2:
        each = 1 if len(reports) > 1 else self_tests.RANKS_WITHOUT_GPUS
        nccl = False
    else:
        nccl = all(report.has_nccl for report in reports) and environ.get("SMDDP_NCCL", "1") != "0"
    return _show(self_tests.run(start(each), environ, each * len(reports), limit, verbose, nccl))


def _report_here(environ: Mapping[str, str], limit: float) -> Report:
    words = programs.words_of(host_report.__name__)
    remedy = "run 'python -c \"import smddprun.check.host_report\"' to see why, and mend that first"
    return _report_from(socket.gethostname(), programs.run(words, environ, limit), limit, remedy)


def _reports_of(
    launcher: tuple[str, str], named: Sequence[hosts.Host], environ: Mapping[str, str], limit: float
) -> list[Report]:
    """Returns the reports of all hosts."""
    words = programs.words_of(host_report.__name__)
    reports = []
    for host, each in zip(named, programs.run_on_each(launcher, named, environ, words, limit)):
        remedy = (
            f"see that 'ssh {host.name} true' needs no password, and that {host.name} has Python and "
            "smddprun under the same paths"
        )
        reports.append(_report_from(host.name, each, limit, remedy))
    return reports


def _report_from(host: str, ended: programs.Ended, limit: float, remedy: str) -> Report:
    """Returns the report that a program has written, or one that says that there is none."""
    parts = [findings.report_of(content) for content in findings.decode(host_report.KIND, ended.output)]
    found = [finding for part in parts for finding in part.findings]
    if len(parts) < host_report.PARTS:
        why = f"{ended.why(limit)}\n{ended.excerpt()}".rstrip()
        topic, what, run = (
            ("report", f"none came from {host}", remedy),
            ("libraries", "the program that imports tf_smddp has failed", _SEE.format("import tf_smddp")),
            (gpu_report.TOPIC, "the program that looks for GPUs has failed", _SEE.format(_LOOK)),
        )[len(parts)]
        found.append(Finding(topic, f"{what}: {why}", run))
    versions = {name: version for part in parts for name, version in part.versions.items()}
    return Report(
        parts[0].host if parts else host,
        tuple(found),
        versions,
        max((part.gpus for part in parts), default=0),
        any(part.has_nccl for part in parts),
    )


def _show_reports(reports: Sequence[Report]) -> int:
    """Prints the reports, and in what the hosts differ. Returns the number of problems."""
    problems = 0
    for report in reports:
        _print(f"{report.host}:")
        problems += _show(report.findings)
    if len(reports) > 1:
        _print("all hosts:")
    return problems + _show(findings.disagreements(reports))


def _show(found: Sequence[Finding]) -> int:
    for line in findings.lines_of(found):
        _print(line)
    return sum(each.is_problem for each in found)


def _conclude(problems: int) -> int:
    if problems == 0:
        _print("no problem was found")
        return 0
    _print(
        f"{problems} problem{'s' if problems > 1 else ''}: the lines that begin with '!', and their remedies"
    )
    return 1


def _print(line: str) -> None:
    print(line, flush=True)


def _raise_exit(number: int, frame: FrameType | None) -> None:
    """Ends this process by an exception, so that the programs that it has started are ended, too."""
    raise SystemExit(128 + number)
