"""MPI, NCCL and the CUDA driver of this host. The engine of tf_smddp is asked, since it is what uses them."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from typing import Any

from smddprun import gpus, mpi
from smddprun.check.findings import Finding

_NO_GPU = "this host has no NVIDIA GPU, so none is needed"


def launcher(environ: Mapping[str, str]) -> Finding:
    """Returns what there is to say of MPI's launcher."""
    try:
        program, family = mpi.find_launcher(environ)
    except mpi.LauncherError as error:
        return Finding("MPI launcher", f"none that can be used: {error}")
    return Finding("MPI launcher", f"{family}, {program}")


def find(environ: Mapping[str, str], several_hosts: bool) -> tuple[list[Finding], dict[str, str]]:
    """Returns what there is to say of the libraries, and the versions that must be the same on all hosts.

    It imports TensorFlow, if there is one.

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
        return [Finding("libraries", text, "do what the error above says")], {}
    if libraries["CUDA driver"][0]:
        libraries["CUDA driver"] = (True, _cuda_driver())
    there, text = libraries["MPI library"]
    # The path may differ between the hosts.
    versions = {"MPI library": text.rpartition(" (")[0]} if there else {}
    return of(libraries, gpus.count(environ), several_hosts), versions


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


def _cuda_driver() -> str:
    """The version of CUDA that the driver is for, and its path."""
    version = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "/libcuda.so" in line]
    return f"for CUDA {version.value // 1000}.{version.value % 1000 // 10} ({paths[0] if paths else '?'})"
