"""Jobs of several hosts, which MPI joins. The hosts are network namespaces of this machine."""

import json
import os
import pathlib
import sys

import mpi_launchers
import pytest
from conftest import SCRIPTS
from foreign_jobs import Bench
from test_drop_in import equal_weights
from test_parallel import JOB, LIMIT_SECONDS
from virtual_hosts import VirtualHosts, agent_variables


def run_on_hosts(counts, *words):
    """Runs a command with so many ranks on each host."""
    names = ",".join(f"h{host}:{count}" for host, count in enumerate(counts))
    smddprun = [sys.executable, "-m", "smddprun", "-H", names, "--network-interfaces", "eth0"]
    mpi = pathlib.Path(mpi_launchers.program("openmpi4")).parent
    with VirtualHosts(len(counts)) as hosts, Bench() as bench:
        changes = agent_variables("openmpi4", hosts)
        changes |= {"PATH": f"{mpi}{os.pathsep}{os.environ['PATH']}", "GLOO_SOCKET_IFNAME": "eth0"}
        running = bench.start(*hosts.on("h0", [*smddprun, sys.executable, *words]), **changes)
        ended = running.finish(LIMIT_SECONDS)
    assert ended.code == 0, ended.output


def test_a_script(tmp_path):
    run_on_hosts([2, 1], SCRIPTS / "new_style.py", tmp_path)
    equal_weights(tmp_path, "new_style", 3)


@pytest.mark.long
@pytest.mark.parametrize("job, counts", [(JOB, [2, 1]), (SCRIPTS / "backend.py", [1, 1])])
def test_what_runs_on_one_host(tmp_path, job, counts):
    """Each function of a job that other tests run on one host."""
    run_on_hosts(counts, job, tmp_path)
    for rank in range(sum(counts)):
        found = json.loads((tmp_path / f"results-{rank}").read_text())
        wrong = {name: text for name, text in found.items() if text}
        assert found and not wrong, "\n".join(f"{name}:\n{text}" for name, text in wrong.items())
