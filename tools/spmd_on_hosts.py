"""Runs a command as ranks on virtual hosts: tools/spmd_on_hosts.py 2,1 COMMAND... has 2 ranks, and 1.

Open MPI 4 joins them. It needs root, for the hosts are network namespaces.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python" / "launchers"))

import mpi_launchers
from virtual_hosts import VirtualHosts, mpirun


def main() -> int:
    """Returns the exit code of mpirun."""
    counts = [int(count) for count in sys.argv[1].split(",")]
    with VirtualHosts(len(counts)) as hosts:
        ranks = dict(zip(hosts.names, counts))
        words = mpirun("openmpi4", hosts, ranks, mpi_launchers.open_mpi()[0])
        command = hosts.on(hosts.names[0], [*words, "-wdir", os.getcwd(), *sys.argv[2:]])
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
