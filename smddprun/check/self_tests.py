"""Starts the self test, and says how it has ended.

On GPUs that NCCL joins there are two runs: one that also measures, and one without memory growth, as in
scripts that do not set it. Where the first one fails or hangs, it is tried again in new processes, with parts
of NCCL turned off; the first setting with which it works is the remedy.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from smddprun import hosts, mpi
from smddprun.check import bandwidth, findings, programs, self_test
from smddprun.check.findings import Finding
from smddprun.options import Options

RANKS_WITHOUT_GPUS = 2
MOST_RANKS = 8
# These turn off a part of NCCL, and then NCCL: NVLink SHARP, and the GPUs' way into each other's memory.
SETTINGS = ("NCCL_NVLS_ENABLE=0", "NCCL_P2P_DISABLE=1", "SMDDP_NCCL=0")
_TOPIC = "self test"
_GROWTH_TOPIC = "without growth"
_PAST = ", but not through NCCL"
_MORE_MEMORY = (
    "leave NCCL more of the GPU's memory: set memory growth in scripts, or start jobs with 'smddprun -x "
    "TF_DEVICE_MIN_SYS_MEMORY_IN_MB=6144 ...'"
)
_LOG = "[tf_smddp rank "  # how lines of the engine's log begin
# Time for the launcher itself to end the ranks, beyond the limit.
_LAUNCHER_SECONDS = 30.0
# A run with another setting has this part of the limit: it measures nothing.
_AGAIN = 1 / 3

# Returns the words of a run and its environment, for an environment, a limit and the arguments of the test.
Start = Callable[[Mapping[str, str], float, Sequence[str]], "tuple[list[str], dict[str, str]]"]


def on_this_host(num_ranks: int) -> Start:
    """Returns how the test starts here."""

    def start(
        environ: Mapping[str, str], limit: float, arguments: Sequence[str]
    ) -> tuple[list[str], dict[str, str]]:
        words = [*programs.words_of("smddprun.__main__"), "-np", str(num_ranks), "--no-tag-output"]
        words += ["--timeout", f"{limit:g}", *programs.words_of(self_test.__name__), *arguments]
        return words, dict(environ)

    return start


def on_hosts(launcher: tuple[str, str], named: Sequence[hosts.Host], ranks_each: int) -> Start:
    """Returns how the test starts on several hosts, through MPI's launcher."""
    dealt = [hosts.Host(host.name, ranks_each) for host in named]

    def start(
        environ: Mapping[str, str], limit: float, arguments: Sequence[str]
    ) -> tuple[list[str], dict[str, str]]:
        chosen = Options(tag_output=False, timeout=limit)
        own = [*programs.words_of(self_test.__name__), *arguments]
        words = mpi.launch_words(*launcher, dealt, chosen, environ, own)
        return words, mpi.launch_environment(launcher[1], Options(timeout=limit), environ)

    return start


def environment(environ: Mapping[str, str], limit: float) -> dict[str, str]:
    """Returns the environment of the test: what waits or hangs is noticed before the limit."""
    return {
        "SMDDP_NCCL_TIMEOUT": str(max(1, int(min(60, limit / 2)))),
        "SMDDP_BOOTSTRAP_TIMEOUT": str(max(1, int(limit * 2 / 3))),
        "SMDDP_STALL_WARNING": f"{max(1, int(limit / 6))}",
        **environ,
    }


def run(
    start: Start, environ: Mapping[str, str], num_ranks: int, limit: float, verbose: bool, nccl: bool
) -> list[Finding]:
    """Runs the test, and returns what there is to say.

    Args:
      start: how it starts.
      environ: the environment of the ranks.
      num_ranks: how many ranks it has.
      limit: in seconds, for each run.
      verbose: whether to show the words and all that the ranks write.
      nccl: whether each rank has a GPU of its own, and NCCL is to join them.
    """

    def one_run(topic: str, nccl: bool, seconds: float, setting: str, *arguments: str) -> list[Finding]:
        name, _, value = setting.partition("=")
        changed = {**environ, name: value} if setting else environ
        words, final = start(environment(changed, seconds), seconds, arguments)
        ended = programs.run(words, final, seconds + _LAUNCHER_SECONDS)
        found = result(ended, num_ranks, seconds, topic, nccl)
        if verbose:
            shown = "\n".join(f"| {line}" for line in ended.lines())
            found.append(Finding("its output", f"of {setting} {shlex.join(words)}\n{shown}".strip()))
        return found

    if not nccl:
        return one_run(_TOPIC, False, limit, "")
    found = one_run(_TOPIC, True, limit, "", self_test.BANDWIDTH)
    if not found[0].is_problem:
        return found + one_run(_GROWTH_TOPIC, True, limit, "", self_test.WHOLE_MEMORY)
    shown: list[Finding] = []
    settings = SETTINGS[:-1] if _PAST in found[0].text else SETTINGS
    for setting in settings:
        again = one_run(_TOPIC, setting != SETTINGS[-1], limit * _AGAIN, setting)
        shown += [each for each in again if each.topic == "its output"]
        if not again[0].is_problem:
            remedy = f"with {setting} it works: start jobs with 'smddprun -x {setting} ...'"
            found[0] = found[0]._replace(remedy=remedy)
            break
    else:
        found[0] = found[0]._replace(
            text=f"{found[0].text}\nit is the same with {' and with '.join(settings)}"
        )
    return found + shown


def result(
    ended: programs.Ended, num_ranks: int, limit: float, topic: str = _TOPIC, through_nccl: bool = False
) -> list[Finding]:
    """Returns what there is to say of a run that has ended: the result, and warnings of the engine. Pure."""
    warnings = [line[line.index(_LOG) :] for line in ended.lines() if _LOG in line and " warning] " in line]
    notes = [Finding("", line) for line in dict.fromkeys(warnings)]
    ranks: list[Any] = findings.decode(self_test.KIND, ended.output)
    ranks.sort(key=lambda each: int(each["rank"]))
    right = [each["rank"] for each in ranks]
    if ended.code == 0 and right == list(range(num_ranks)):
        devices: dict[str, list[str]] = {}
        for each in ranks:
            devices.setdefault(each["host"], []).append(each["device"])
        places = [f"{host} ({_span(names)})" for host, names in devices.items()]
        text = f"{num_ranks} ranks on {', '.join(places)}: {ranks[0]['right']}"
        if not through_nccl:
            return [Finding(topic, text), *notes]
        past = sorted({name for each in ranks for name in each["past_nccl"]})
        if past:
            text += f"{_PAST}: {', '.join(past)} went through the host's memory"
            remedy = "do what the engine's warning says; '-v -x NCCL_DEBUG=INFO' shows what NCCL finds"
            return [Finding(topic, text, _MORE_MEMORY if topic == _GROWTH_TOPIC else remedy), *notes]
        rates = [rate for each in findings.decode(bandwidth.KIND, ended.output) for rate in each]
        table = [bandwidth.finding_of(rates, num_ranks)] if rates else []
        return [Finding(topic, f"{text}, through NCCL"), *table, *notes]
    late = ended.code in (None, 124)
    text = f"{num_ranks} ranks were started, and {len(right)} have the right results: "
    text += f"the test took longer than {limit:g} s" if late else ended.why(limit)
    remedy = (
        "see in the engine's warnings which rank is waited for, or give more time, as in '--timeout 300'"
        if late
        else "do what the error above says; '-v -x SMDDP_LOG_LEVEL=info' shows all that the ranks write"
    )
    remedy = _MORE_MEMORY if topic == _GROWTH_TOPIC else remedy
    return [Finding(topic, f"{text}\n{ended.excerpt()}".rstrip(), remedy), *notes]


def _span(devices: Sequence[str]) -> str:
    """Returns 'GPU:0', 'GPU:0, GPU:1', or 'GPU:0 to GPU:7'."""
    different = list(dict.fromkeys(devices))
    return ", ".join(different) if len(different) <= 2 else f"{different[0]} to {different[-1]}"
