"""Starts the self test, and says how it has ended."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from smddprun import hosts, mpi
from smddprun.check import findings, programs, self_test
from smddprun.check.findings import Finding
from smddprun.options import Options

RANKS_ON_ONE_HOST = 2
_TOPIC = "self test"
_LOG = "[tf_smddp rank "  # how lines of the engine's log begin
# Time for the launcher itself to end the ranks, beyond the limit.
_LAUNCHER_SECONDS = 30.0


def words_on_this_host(limit: float) -> list[str]:
    """Returns the words that run the test with two ranks here."""
    launcher = [*programs.words_of("smddprun.__main__"), "-np", str(RANKS_ON_ONE_HOST), "--no-tag-output"]
    return [*launcher, "--timeout", f"{limit:g}", *programs.words_of(self_test.__name__)]


def words_on(
    launcher: tuple[str, str], named: Sequence[hosts.Host], environ: Mapping[str, str], limit: float
) -> list[str]:
    """Returns the words that run the test with one rank on each host, and two if there is but one."""
    ranks = 1 if len(named) > 1 else RANKS_ON_ONE_HOST
    chosen = Options(tag_output=False, timeout=limit)
    dealt = [hosts.Host(host.name, ranks) for host in named]
    return mpi.launch_words(*launcher, dealt, chosen, environ, programs.words_of(self_test.__name__))


def environment(environ: Mapping[str, str], limit: float) -> dict[str, str]:
    """Returns the environment of the test: ranks that wait say so before the limit."""
    return {
        "SMDDP_BOOTSTRAP_TIMEOUT": str(max(1, int(limit * 2 / 3))),
        "SMDDP_STALL_WARNING": f"{max(1, int(limit / 6))}",
        **environ,
    }


def run(
    words: Sequence[str], environ: Mapping[str, str], num_ranks: int, limit: float, verbose: bool
) -> list[Finding]:
    """Runs the test, and returns what there is to say.

    Args:
      words: what to run.
      environ: its environment.
      num_ranks: how many ranks it has.
      limit: in seconds; the launcher knows it, too.
      verbose: whether to show the words and all that the ranks write.
    """
    ended = programs.run(words, environ, limit + _LAUNCHER_SECONDS)
    found = result(ended, num_ranks, limit)
    if verbose:
        shown = "\n".join(f"| {line}" for line in ended.lines())
        found.append(Finding("its output", f"of {shlex.join(words)}\n{shown}".rstrip()))
    return found


def result(ended: programs.Ended, num_ranks: int, limit: float) -> list[Finding]:
    """Returns what there is to say of a test that has ended: the result, and warnings of the engine. Pure."""
    warnings = [line[line.index(_LOG) :] for line in ended.lines() if _LOG in line and " warning] " in line]
    notes = [Finding("", line) for line in dict.fromkeys(warnings)]
    ranks: list[Any] = findings.decode(self_test.KIND, ended.output)
    ranks.sort(key=lambda each: int(each["rank"]))
    right = [each["rank"] for each in ranks]
    if ended.code == 0 and right == list(range(num_ranks)):
        places = dict.fromkeys(f"{each['host']} ({each['device']})" for each in ranks)
        text = f"{num_ranks} ranks on {', '.join(places)}: init, allreduce and broadcast are right"
        return [Finding(_TOPIC, text), *notes]
    late = ended.code in (None, 124)
    text = f"{num_ranks} ranks were started, and {len(right)} have the right results: "
    text += f"the test took longer than {limit:g} s" if late else ended.why(limit)
    remedy = (
        "see in the engine's warnings which rank is waited for, or give more time, as in '--timeout 300'"
        if late
        else "do what the error above says; '-v -x SMDDP_LOG_LEVEL=info' shows all that the ranks write"
    )
    return [Finding(_TOPIC, f"{text}\n{ended.excerpt()}".rstrip(), remedy), *notes]
