"""MPI, NCCL and the CUDA driver of this host. The engine of tf_smddp is asked, since it is what uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smddprun import gpus, mpi
from smddprun.check import findings, library_probe, programs
from smddprun.check.findings import Finding
from smddprun.hosts import Host
from smddprun.options import Options

_NO_GPU = "this host has no NVIDIA GPU, so none is needed"


def find(
    environ: Mapping[str, str], several_hosts: bool, limit: float
) -> tuple[list[Finding], dict[str, str]]:
    """Returns what there is to say of the libraries, and the versions that must be the same on all hosts.

    Args:
      environ: the environment of the ranks.
      several_hosts: whether MPI's launcher has started this process, as it starts the ranks.
      limit: in seconds, for each program that is started.
    """
    found: list[Finding] = []
    ended, launcher = None, ""
    try:
        program, family = mpi.find_launcher(environ)
        launcher = f"{family}, {program}"
    except mpi.LauncherError as error:
        found.append(Finding("MPI launcher", f"none that can be used: {error}"))
    else:
        if not several_hosts:
            # The engine takes the MPI of the launcher that has started it.
            ended = _ask_under(program, family, environ, limit)
            if ended is None:
                launcher += ", which starts no process here; only jobs of several hosts need it"
        found.append(Finding("MPI launcher", launcher))
    ended = ended or programs.run(programs.words_of(library_probe.__name__), environ, limit)
    answers = findings.decode(library_probe.KIND, ended.output)
    versions: dict[str, str] = {}
    if not answers or "found" not in answers[0]:
        found.append(_no_answer(answers, ended, limit))
        return found, versions
    libraries = answers[0]["found"]
    found += of(libraries, gpus.count(environ), several_hosts)
    if libraries["MPI library"][0]:
        # The path may differ between the hosts.
        versions["MPI library"] = libraries["MPI library"][1].rpartition(" (")[0]
    return found, versions


def of(libraries: Mapping[str, Any], num_gpus: int, several_hosts: bool) -> list[Finding]:
    """Returns what there is to say of the engine's answer. Pure.

    Args:
      libraries: for each name, whether it was found, and its version and path or why not.
      num_gpus: of this host.
      several_hosts: whether MPI is needed.
    """
    found = []
    there, text = libraries["MPI library"]
    if there or several_hosts:
        remedy = "" if there else "install the MPI whose launcher is named above, on this host as well"
        found.append(Finding("MPI library", text, remedy))
    else:
        found.append(Finding("MPI library", f"none; only jobs of several hosts need one\n{text}"))
    for name, needed, remedy in (
        ("CUDA driver", 1, "install NVIDIA's driver, or start the container with '--gpus all'"),
        ("NCCL", 2, "install it: pip install nvidia-nccl-cu12"),
    ):
        there, text = libraries[name]
        if there:
            found.append(Finding(name, text))
        elif num_gpus >= needed:
            found.append(Finding(name, text, remedy))
        else:
            reason = _NO_GPU if num_gpus == 0 else "this host has one GPU, so none is needed"
            found.append(Finding(name, f"not found; {reason}"))
    return found


def _ask_under(program: str, family: str, environ: Mapping[str, str], limit: float) -> programs.Ended | None:
    """Asks in a process that MPI's launcher starts on this host; None if it starts none."""
    chosen = Options(tag_output=False, timeout=limit)
    probe = programs.words_of(library_probe.__name__)
    words = mpi.launch_words(program, family, [Host("localhost", 1)], chosen, environ, probe)
    ended = programs.run(words, mpi.launch_environment(family, chosen, environ), limit)
    return ended if findings.decode(library_probe.KIND, ended.output) else None


def _no_answer(answers: list[Any], ended: programs.Ended, limit: float) -> Finding:
    if answers:
        return Finding(
            "libraries",
            f"tf_smddp cannot be imported, or refuses its settings:\n{answers[0]['error']}",
            "do what the error above says",
        )
    return Finding(
        "libraries",
        f"the program that imports tf_smddp has failed: {ended.why(limit)}\n{ended.excerpt()}".rstrip(),
        "run 'python -c \"import tf_smddp\"' to see why, and mend that first",
    )
