"""Ranks that Slurm's srun starts on two hosts, with each of its ways to join them by MPI."""

import os
import pathlib
import shlex
import sys

import pytest
from foreign_jobs import ROOT, check_digits, check_who, digits
from slurm_cluster import SlurmCluster
from virtual_hosts import UCX, VirtualHosts

TESTS = pathlib.Path(__file__).parents[1]
COLLECTIVES = TESTS / "launchers" / "collectives_job.py"
NETWORK = {**UCX, "OMPI_MCA_btl_tcp_if_include": "eth0"}


@pytest.fixture(scope="module")
def hosts():
    with VirtualHosts(2) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(hosts):
    with SlurmCluster(hosts) as made:
        yield {**made.environ, **NETWORK}


def srun(hosts, *words):
    return hosts.on("h0", ["srun", *words])


@pytest.mark.parametrize(
    "mpi, tasks",
    [
        ("none", "2,1"),
        pytest.param("pmi2", "2,1", marks=pytest.mark.long),
        pytest.param("pmix", "2,1", marks=pytest.mark.long),
        pytest.param("none", "2,3", marks=pytest.mark.long),
    ],
)
def test_collectives(bench, hosts, cluster, mpi, tasks):
    counts = [int(count) for count in tasks.split(",")]
    total = str(sum(counts))
    layout = bench.folder / "hosts"
    layout.write_text("".join(f"{name}\n" * count for name, count in zip(hosts.names, counts, strict=True)))
    words = ["-n", total, "-N", "2", f"--mpi={mpi}", "--distribution=arbitrary", f"--nodelist={layout}"]
    ended = bench.run(*srun(hosts, *words, sys.executable, COLLECTIVES, "all"), **cluster)
    assert ended.code == 0, ended.output
    lines = ended.lines("all: ")
    places = [f"local {local} of {count}" for count in counts for local in range(count)]
    assert len(lines) == len(places), ended.output
    for rank, (line, place) in enumerate(zip(lines, places, strict=True)):
        assert line.startswith(f"all: rank {rank} of {total}, {place}, "), ended.output
    assert len({line.split()[-1] for line in lines}) == 1, ended.output


@pytest.mark.long
def test_two_steps_of_a_job_at_once(bench, hosts, cluster):
    who = f"{sys.executable} {bench.who}"
    script = bench.folder / "batch.sh"
    script.write_text(
        f"""#!/bin/bash
srun -N 2 -n 2 --overlap {who} one & first=$!
srun -N 2 -n 2 --overlap {who} other & second=$!
wait $first && wait $second
"""
    )
    log = bench.folder / "batch.log"
    words = ["sbatch", "--wait", "-N", "2", "-n", "4", "-o", log, script]
    ended = bench.run(*hosts.on("h0", words), **cluster)
    ended = ended._replace(output=ended.output + log.read_text())
    check_who(ended, "one")
    check_who(ended, "other")


@pytest.mark.long
def test_the_example_batch_script(bench, hosts, cluster):
    log = bench.folder / "batch.log"
    words = ["sbatch", "--wait", "-N", "2", "-o", log, ROOT / "examples" / "slurm.sh", *digits()[1:]]
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    ended = bench.run(*hosts.on("h0", words), PATH=path, **cluster)
    check_digits(ended._replace(output=ended.output + log.read_text()))


@pytest.mark.long
def test_a_script_with_slurms_cluster_resolver(bench, hosts, cluster):
    """The batch script of a centre's page for MultiWorkerMirroredStrategy, with another command."""
    script = TESTS / "scripts" / "distribute_custom_loop.py"
    batch, log = bench.folder / "batch.sh", bench.folder / "log"
    batch.write_text(
        f"""#!/bin/bash
#SBATCH --job-name=tf2_multi_worker
#SBATCH --nodes=2
#SBATCH --ntasks=3
#SBATCH --hint=nomultithread
#SBATCH --time=00:10:00
cd ${{SLURM_SUBMIT_DIR}}
set -x
srun {sys.executable} -u -m tf_smddp.distribute {script} {bench.folder}
"""
    )
    ended = bench.run(*hosts.on("h0", ["sbatch", "--wait", "-o", log, batch]), **cluster)
    assert ended.code == 0, ended.output + log.read_text()
    found = {line.split("FOUND ")[1] for line in log.read_text().splitlines() if "FOUND " in line}
    assert len(found) == 1, log.read_text()  # the digest of the weights is among it
    assert log.read_text().count("FOUND ") == 3
    assert "Number of workers: 3" in log.read_text()


@pytest.mark.long
def test_variables_of_torchrun_that_a_script_has_set_from_slurms(bench, hosts, cluster):
    command = f"exec {shlex.join([sys.executable, str(bench.who), 'copied'])}"
    script = "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=2 LOCAL_WORLD_SIZE=1; " + command
    for mpi in ("none", "pmi2"):
        words = ["-N", "2", "-n", "2", f"--mpi={mpi}", "bash", "-c", script]
        check_who(bench.run(*srun(hosts, *words), **cluster), "copied")
