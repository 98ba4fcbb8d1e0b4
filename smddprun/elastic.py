"""The hosts of one start of the job: those that answer, of those that the user or a script names."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Callable

from smddprun import hosts, mpi, summary
from smddprun.check import programs
from smddprun.command import CommandError
from smddprun.hosts import Host
from smddprun.options import Options, UsageError

TIMEOUT = 600.0  # as horovodrun's
_OPTION = "--host-discovery-script"
_SCRIPT_SECONDS = 60.0
# A host answers if MPI's launcher has run a program there within this time.
_ANSWER_SECONDS = 20.0
_PAUSE_SECONDS = 2.0


class DiscoveryError(Exception):
    """The script has failed. The text is one line."""


def discover(script: str, slots: int) -> list[Host]:
    """Returns the hosts that a script prints, a line for each: "host:8", or "host", which has `slots`.

    Raises:
      DiscoveryError: it cannot be executed, fails, takes too long, or prints something else.
    """
    ended = programs.run([os.path.abspath(script)], os.environ, _SCRIPT_SECONDS, as_group=True)
    if ended.code != 0:
        why = "; ".join([ended.why(_SCRIPT_SECONDS), *ended.errors.strip().splitlines()[-1:]])
        raise DiscoveryError(f"{_OPTION} {script!r} has failed: {why}")
    lines = [line.strip() for line in ended.output.splitlines() if line.strip()]
    named = [line if ":" in line else f"{line}:{slots}" for line in lines]
    try:
        return hosts.parse_list(f"{_OPTION} {script!r} has printed", ",".join(named)) if named else []
    except UsageError as error:
        raise DiscoveryError(str(error)) from error


def answering(named: Sequence[Host], environ: Mapping[str, str]) -> list[Host]:
    """Returns the hosts on which MPI's launcher can run a program now, and this one, if it is among them.

    Raises:
      mpi.LauncherError: there is no launcher.
    """
    others = [host for host in named if not hosts.is_this_one(host)]
    if not others:
        return list(named)
    ended = programs.run_on_each(mpi.find_launcher(environ), others, environ, ["true"], _ANSWER_SECONDS)
    silent = {host for host, each in zip(others, ended) if each.code != 0}
    return [host for host in named if host not in silent]


def find(
    name_hosts: Callable[[], list[Host]], chosen: Options, environ: Mapping[str, str], first: bool
) -> list[Host]:
    """Returns the hosts with the ranks that each gets. It waits until there are enough hosts that answer.

    Args:
      name_hosts: returns the hosts with their slots. It is called again and again.
      chosen: the options.
      environ: with the ways to the hosts.
      first: whether this is the first start of the job, at which a script that fails is a mistake.

    Raises:
      CommandError: there were not enough hosts in time.
      UsageError: the script has failed at the first start, or -H names too few slots.
      mpi.LauncherError: there is no launcher.
    """
    most = chosen.num_ranks
    least = chosen.min_ranks or most or 1
    limit = TIMEOUT if chosen.elastic_timeout is None else chosen.elastic_timeout
    ends_at = time.monotonic() + limit
    told = ""
    while True:
        named: list[Host] = []
        found: list[Host] = []
        try:
            named = name_hosts()
            _refuse_too_few(named, least, chosen)
            found = answering(named, environ)
            silent = [host.name for host in named if host not in found]
            answer = "all hosts that are named answer" if named else "no host is named"
            problem = f"no answer from {', '.join(silent)}" if silent else answer
        except DiscoveryError as error:
            if first and not told:
                raise UsageError(str(error)) from error
            silent, problem = [], str(error)
        slots = sum(host.slots for host in found)
        have = f"{problem}; there is room for {slots} ranks"
        look = f"; see 'smddprun --check -H {','.join(silent)}'" if silent else ""
        if slots >= least:
            if silent:
                _say(f"{have}: the job starts without the others{look}")
            return hosts.deal(found, min(slots, most or slots))
        if time.monotonic() >= ends_at:
            remedy = "mend the hosts, name more, or give a smaller --min-np or a longer --elastic-timeout"
            raise CommandError(
                f"{have} after {limit:g} s, and {least} are needed: {remedy}{look}", summary.TIMEOUT_CODE
            )
        if have != told:
            told = have
            _say(f"{have}, and {least} are needed: waiting for more, for up to {limit:g} s{look}")
        time.sleep(_PAUSE_SECONDS)


def _refuse_too_few(named: Sequence[Host], least: int, chosen: Options) -> None:
    """Refuses hosts of which there will never be enough; a hostfile or a script may name more later."""
    slots = sum(host.slots for host in named)
    if chosen.hosts is not None and slots < least:
        raise UsageError(
            f"--min-np {least}: the hosts have {slots} slots; name more hosts, or give a smaller number"
        )


def _say(text: str) -> None:
    print(f"smddprun: {text}", file=sys.stderr, flush=True)
