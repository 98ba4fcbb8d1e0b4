"""Kubernetes' MPI Operator: examples/mpijob.yaml, as the operator's launcher would run it.

The operator (v2beta1, pkg/controller/mpi_job_controller.go) starts a pod for the launcher, which has no rank,
and pods for the workers, in which a server of ssh runs. Here the pods are virtual hosts. A stand-in for ssh
starts the commands on them, in an environment as poor as that of an ssh session.
"""

import os
import pathlib
import re
import sys

import mpi_launchers
import pytest
from foreign_jobs import ROOT, digits
from virtual_hosts import UCX, VirtualHosts

pytestmark = pytest.mark.long
DOMAIN = "digits-worker.default.svc"
SSH = """#!/bin/bash
exec env -i {kept} PATH=/usr/bin:/bin HOME="$HOME" {agent} "$@"
"""


def example():
    """From the example: the command of the launcher, the number of workers, and of ranks on each."""
    text = (ROOT / "examples" / "mpijob.yaml").read_text()
    launcher, worker = text.split("Launcher:")[1].split("Worker:")
    command = re.search(r"command: \[(.*)\]", launcher).group(1)
    words = [word.strip().strip('"') for word in command.split(",")]
    workers = int(re.search(r"replicas: (\d+)", worker).group(1))
    return words, workers, int(re.search(r"slotsPerWorker: (\d+)", text).group(1))


def operator_variables(kind, hostfile, slots):
    """The operator's variables in the launcher's container, beside the example's own."""
    common = {"K_MPI_JOB_ROLE": "launcher", "NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    if kind == "mpich":
        own = {"HYDRA_HOST_FILE": hostfile, "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"}
    else:
        own = {
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": hostfile,
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
            "OMPI_MCA_orte_set_default_slots": str(slots),
        }
    return {**common, **own}


def run_job(bench, kind, change):
    """Runs the example on a launcher and its workers, with its command changed by `change`."""
    words, workers, slots = example()
    pods = [*(f"digits-worker-{index}" for index in range(workers)), "digits-launcher"]
    mark = [f"{name}={value}" for name, value in bench.environ().items() if "TEST_FOREIGN_JOB" in name]
    with VirtualHosts(len(pods), names=pods, domain=DOMAIN) as hosts:
        slot = ":{}" if kind == "mpich" else " slots={}"
        hostfile = bench.folder / "hostfile"
        hostfile.write_text("".join(f"{pod}.{DOMAIN}{slot.format(slots)}\n" for pod in pods[:-1]))
        programs = bench.folder / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(SSH.format(kept=" ".join(mark), agent=hosts.agent))
        (programs / "ssh").chmod(0o755)
        folder = pathlib.Path(mpi_launchers.program(kind)).parent
        changes = {
            **operator_variables(kind, str(hostfile), slots),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PATH": os.pathsep.join([str(programs), str(folder), "/usr/bin", "/bin"]),
            **(UCX if kind == "mpich" else {}),
        }
        running = bench.start(*hosts.on(pods[-1], change(words)), **changes)
        return running.finish(300), slots, workers


def with_this_python(words, script):
    """The example's command, with this Python, and another script."""
    python = words.index("/usr/bin/python3")
    return [*words[:python], sys.executable, *script]


WHERE = """
import os
import tensorflow as tf
import tf_smddp as sdp
sdp.init()
total = sdp.allreduce(tf.constant([1 + sdp.rank()]), 0, 1, op=sdp.ReduceOp.SUM).numpy()[0]
place = f"rank {sdp.rank()} of {sdp.size()}, local {sdp.local_rank()} on {os.uname().nodename}"
os.write(1, f"where: {place}, sum {total}\\n".encode())
"""


@pytest.mark.parametrize("kind", ["openmpi4", "openmpi5", "mpich"])
def test_ranks(bench, kind):
    """The workers have all ranks, and the launcher none."""
    job = bench.folder / "where.py"
    job.write_text(WHERE)

    def change(words):
        if kind == "openmpi5":
            words = [words[0], "--hostfile", bench.folder / "hostfile", *words[1:]]
        return with_this_python(words, [job])

    ended, slots, workers = run_job(bench, kind, change)
    assert ended.code == 0, ended.output
    size = slots * workers
    expected = [
        f"where: rank {rank} of {size}, local {rank % slots} on digits-worker-{rank // slots}, "
        f"sum {size * (size + 1) // 2}"
        for rank in range(size)
    ]
    assert ended.lines("where: ") == expected, ended.output


def test_the_example(bench):
    arguments = digits()[1:]
    ended, slots, workers = run_job(bench, "openmpi4", lambda words: with_this_python(words, arguments))
    assert ended.code == 0, ended.output
    assert ended.lines("ranks") == [f"ranks          {slots * workers}"], ended.output
    assert ended.lines("weights") == ["weights        equal to the bit on all ranks"], ended.output
