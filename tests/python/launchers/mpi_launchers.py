"""Finds the MPI launchers that the tests run."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import List

_ROOT = pathlib.Path(__file__).resolve().parents[3]
# There may be more ranks than cores, and two jobs must not be bound to the same cores. Root needs the first.
_OPEN_MPI_OPTIONS = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


def open_mpi(*options: str) -> List[str]:
    """Returns the words that start Open MPI's mpirun.

    Raises:
        FileNotFoundError: It is not installed.
    """
    # A virtual environment may have another MPI's mpirun, and it is first in PATH.
    candidates = [shutil.which("mpirun.openmpi")]
    candidates += [shutil.which("mpirun", path=folder) for folder in os.environ["PATH"].split(os.pathsep)]
    for path in filter(None, candidates):
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
        if "Open MPI" in version.stdout:
            return [path, *_OPEN_MPI_OPTIONS, *options]
    raise FileNotFoundError("no mpirun of Open MPI in PATH; tools/setup_system.sh launchers installs it")


def mpich(*options: str) -> List[str]:
    """Returns the words that start the mpiexec of PyPI's mpich, which is in the folder of this Python.

    Raises:
        FileNotFoundError: It is not installed.
    """
    path = pathlib.Path(sys.executable).parent / "mpiexec"
    if not path.exists():
        raise FileNotFoundError(f"no {path}; tools/requirements-test.txt names mpich, which brings it")
    return [str(path), *options]


def program(kind: str) -> str:
    """Returns the path of the launcher of an MPI: "openmpi4", "openmpi5" or "mpich".

    Raises:
        FileNotFoundError: It is not installed.
    """
    if kind == "openmpi4":
        return open_mpi()[0]
    if kind == "mpich":
        return mpich()[0]
    path = _ROOT / ".venv" / "openmpi" / "bin" / "mpirun"
    if not path.exists():
        raise FileNotFoundError(f"no {path}; make .venv/openmpi/.requirements installs it")
    return str(path)
