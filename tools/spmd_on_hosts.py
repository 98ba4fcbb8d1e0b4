"""Runs a command as ranks on virtual hosts: spmd_on_hosts.py openmpi4 2,1 COMMAND... has 2 ranks and 1.

The MPI that joins them is openmpi4, openmpi5 or mpich. It needs root, for the hosts are network namespaces.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python" / "launchers"))

import mpi_launchers
from virtual_hosts import VirtualHosts, mpirun


def main() -> int:
    """Returns the exit code of MPI's launcher."""
    kind, layout, *command = sys.argv[1:]
    counts = [int(count) for count in layout.split(",")]
    with VirtualHosts(len(counts)) as hosts:
        ranks = dict(zip(hosts.names, counts))
        words = mpirun(kind, hosts, ranks, mpi_launchers.program(kind))
        job = hosts.on(hosts.names[0], [*words, "-wdir", os.getcwd(), *command])
        return subprocess.run(job, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
