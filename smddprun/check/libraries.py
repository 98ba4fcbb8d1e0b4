"""MPI and NCCL of this host. The engine of tf_smddp is asked, since it is what uses them."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import NamedTuple

from smddprun import mpi
from smddprun.check.findings import Finding


def launcher(environ: Mapping[str, str]) -> Finding:
    """Returns what there is to say of MPI's launcher."""
    try:
        program, family = mpi.find_launcher(environ)
    except mpi.LauncherError as error:
        return Finding("MPI launcher", f"none that can be used: {error}")
    return Finding("MPI launcher", f"{family}, {program}")


class Nccl(NamedTuple):
    """NCCL as the engine has found it: its version and path, or why it cannot use any."""

    found: bool
    text: str


def find(
    environ: Mapping[str, str], several_hosts: bool
) -> tuple[list[Finding], dict[str, str], Nccl | None]:
    """Returns what there is to say of MPI, the versions that must be the same on all hosts, and NCCL.

    It imports TensorFlow, if there is one. If that fails, nothing is known of NCCL.

    Args:
      environ: the environment of the ranks.
      several_hosts: whether MPI's launcher has started this process, as it starts the ranks.
    """
    try:
        from smddp import found_libraries

        if importlib.util.find_spec("tensorflow") is not None:
            # It refuses a TensorFlow for which it was not built; the text says what to do.
            import tf_smddp  # noqa: F401

        libraries = {name: (each.found, each.text) for name, each in found_libraries().items()}
    except Exception as error:  # whatever it is, it is what the user has to know
        text = f"tf_smddp cannot be imported, or refuses its settings:\n{type(error).__name__}: {error}"
        return [Finding("libraries", text, "do what the error above says")], {}, None
    there, text = libraries["MPI library"]
    # The path may differ between the hosts.
    versions = {"MPI library": text.rpartition(" (")[0]} if there else {}
    return [mpi_of(there, text, several_hosts)], versions, Nccl(*libraries["NCCL"])


def mpi_of(there: bool, text: str, several_hosts: bool) -> Finding:
    """Returns what there is to say of MPI's library. Pure.

    Args:
      there: whether it was found.
      text: its version and path, or why there is none.
      several_hosts: whether it is needed.
    """
    if there or several_hosts:
        remedy = "" if there else "install the MPI whose launcher is named above, on this host as well"
        return Finding("MPI library", text, remedy)
    return Finding("MPI library", f"none; only jobs of several hosts need one\n{text}")
