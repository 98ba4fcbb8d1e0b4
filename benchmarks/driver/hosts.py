"""Jobs on several hosts, which are network namespaces of this machine, as the tests of launchers make them.

They need root.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Optional, Tuple

from peers.base import ROOT, Job
from peers.open_mpi import LAUNCHER
from peers.plugin import PYTHON

sys.path.append(str(ROOT / "tests" / "python" / "launchers"))
import virtual_hosts

if TYPE_CHECKING:
    from virtual_hosts import VirtualHosts


@dataclasses.dataclass(frozen=True)
class Layout:
    """How many ranks each host has, and what its link sends at most.

    The rate is written as for tc ("1gbit"); None is no limit.
    """

    counts: Tuple[int, ...]
    rate: Optional[str] = None

    @property
    def title(self) -> str:
        """For tables: "2 hosts with 1 and 1 ranks, links of 1gbit"."""
        ranks = " and ".join(map(str, self.counts))
        links = f"links of {self.rate}" if self.rate else "links without a limit"
        return f"{len(self.counts)} hosts with {ranks} ranks, {links}"

    def hosts(self) -> VirtualHosts:
        """Returns the hosts, which exist while they are used as a context manager."""
        return virtual_hosts.VirtualHosts(len(self.counts), self.rate)

    def job(self, hosts: VirtualHosts, rank: Job) -> Job:
        """Returns the job that runs the command `rank` as each rank, started by Open MPI.

        The variable WORKERS has an address and a port for each rank, separated by commas.
        """
        ranks = dict(zip(hosts.names, self.counts, strict=True))
        words = virtual_hosts.mpirun("openmpi4", hosts, ranks, LAUNCHER)
        workers = [f"{hosts.address(name)}:{7000 + i}" for name, n in ranks.items() for i in range(n)]
        for variable in (*rank.environment, f"WORKERS={','.join(workers)}"):
            words += ["-x", variable]
        return Job(hosts.on(hosts.names[0], [*words, *rank.command]), rank.environment)

    def job_of_servers(self, hosts: VirtualHosts, program: Job) -> Job:
        """Returns the job in which the command `program` is the chief of workers on the hosts.

        TensorFlow's parameter server is on the first host.
        """
        where = ",".join(f"{name}:{count}" for name, count in zip(hosts.names, self.counts, strict=True))
        words = [PYTHON or sys.executable, "-m", "smddprun", "-H", where, "--ps", "1", "--no-tag-output"]
        variables = dict(program.environment)
        for kind in ("openmpi4", "mpich"):  # whichever launcher smddprun finds
            variables.update(virtual_hosts.agent_variables(kind, hosts))
        return Job(hosts.on(hosts.names[0], [*words, *program.command]), variables)


LAYOUTS = (
    Layout((1, 1)),
    Layout((1, 1), "1gbit"),
    Layout((1, 1), "5gbit"),
    Layout((2, 2)),
    Layout((2, 2), "1gbit"),
    Layout((2, 2), "5gbit"),
)
