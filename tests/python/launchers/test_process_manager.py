"""Jobs over two hosts whose launcher brings no process manager for MPI: torchrun's variables, by an agent.

The hosts are network namespaces of this machine. The variables are those of `torchrun --nnodes 2`.
"""

import os
import pathlib
import re
import signal
import sys

import pytest
from foreign_jobs import check_digits, check_who, digits
from test_hosts import STEPS, wait_for
from virtual_hosts import UCX, VirtualHosts

COLLECTIVES = pathlib.Path(__file__).parent / "collectives_job.py"
PORT = 29500
# One of torchrun's agents, with the ranks of one host: agent.py NODE COUNTS RESTARTS COMMAND...
AGENT = f"""
import os, subprocess, sys
node, restarts = int(sys.argv[1]), sys.argv[3]
counts = [int(count) for count in sys.argv[2].split(",")]
workers = []
for local in range(counts[node]):
    environ = dict(os.environ, RANK=str(sum(counts[:node]) + local), WORLD_SIZE=str(sum(counts)),
        LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(counts[node]), GROUP_RANK=str(node), MASTER_ADDR="h0",
        MASTER_PORT="{PORT}", TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=restarts)
    workers.append(subprocess.Popen(sys.argv[4:], env=environ))
sys.exit(max(abs(worker.wait()) for worker in workers))
"""


@pytest.fixture
def hosts():
    with VirtualHosts(2) as made:
        yield made


def start(bench, hosts, node, counts, words, restarts=0, **changes):
    """Starts the agent of one host, with its ranks."""
    agent = bench.folder / "agent.py"
    agent.write_text(AGENT)
    command = [sys.executable, agent, node, counts, restarts, *words]
    return bench.start(*hosts.on(hosts.names[node], command), **{**UCX, **changes})


def run(bench, hosts, counts, words, **changes):
    """Runs the agents of both hosts; returns what they wrote together."""
    agents = [start(bench, hosts, node, counts, words, **changes) for node in (0, 1)]
    ends = [agent.finish() for agent in agents]
    return ends[0]._replace(code=max(end.code for end in ends), output="".join(end.output for end in ends))


@pytest.mark.parametrize("counts", ["2,1", pytest.param("3,2", marks=pytest.mark.long)])
def test_collectives(bench, hosts, counts):
    ended = run(bench, hosts, counts, [sys.executable, COLLECTIVES, "all"])
    assert ended.code == 0, ended.output
    lines = ended.lines("all: ")
    assert len(lines) == sum(int(count) for count in counts.split(",")), ended.output
    assert len({line.split()[-1] for line in lines}) == 1, ended.output


@pytest.mark.long
def test_digits(bench, hosts):
    check_digits(run(bench, hosts, "1,1", digits()))


AGAIN = """
import os
import tensorflow as tf
import tf_smddp as sdp
for attempt in range(3):
    sdp.init()
    total = sdp.allreduce(tf.constant([1.0]), 0, 1, op=sdp.ReduceOp.SUM).numpy()[0]
    sdp.shutdown()
left = [name for name in os.environ if name.startswith("PMI")]
os.write(1, f"again: {total}, {left}\\n".encode())
"""


@pytest.mark.long
def test_init_several_times(bench, hosts):
    job = bench.folder / "again.py"
    job.write_text(AGAIN)
    ended = run(bench, hosts, "1,1", [sys.executable, job])
    assert ended.lines("again: ") == ["again: 2.0, []"] * 2, ended.output


def test_rank_0_does_not_come(bench, hosts):
    words = [sys.executable, bench.who, "who"]
    ended = start(bench, hosts, 1, "1,1", words, SMDDP_BOOTSTRAP_TIMEOUT="2").finish()
    assert ended.code != 0, ended.output
    assert (
        f"rank 1 has not found rank 0's process manager for MPI at h0:{PORT + 1} within 2 s" in ended.output
    )


@pytest.mark.long
def test_a_rank_that_comes_twice(bench, hosts):
    """Two agents have the same node; the third rank does not come. test_pmi_server.py has the protocol."""
    agents = [
        start(bench, hosts, node, "1,1,1", [sys.executable, bench.who, "who"], SMDDP_BOOTSTRAP_TIMEOUT="60")
        for node in (0, 1, 1)
    ]
    ends = [agent.finish() for agent in agents]
    assert all(end.code != 0 for end in ends), ends
    assert "rank 1 has come twice to MPI's process manager, from " in ends[0].output, ends[0].output


@pytest.mark.long
def test_the_port_is_taken(bench, hosts):
    listen = f"import socket, time; s = socket.create_server(('', {PORT + 1})); print('there', flush=True)"
    other = bench.start(*hosts.on("h0", [sys.executable, "-c", f"{listen}; time.sleep(100)"]))
    wait_for(other, lambda output: "there" in output, 10)
    ended = start(bench, hosts, 0, "1,1", [sys.executable, bench.who, "who"]).finish()
    other.process.kill()
    assert ended.code != 0, ended.output
    text = f"rank 0 cannot listen at port {PORT + 1} of its host for the other ranks: Address already in use"
    assert text in ended.output, ended.output


@pytest.mark.long
def test_open_mpi_is_of_no_use(bench, hosts):
    library = "libmpi.so.40"
    words = [sys.executable, bench.who, "who"]
    ended = run(bench, hosts, "1,1", words, SMDDP_MPI_LIBRARY=library, SMDDP_BOOTSTRAP_TIMEOUT="5")
    assert ended.code != 0, ended.output
    assert "is not of MPICH's family, which jobs of torchrun need over several hosts" in ended.output


@pytest.mark.long
def test_mpi4py_before_init(bench, hosts):
    job = bench.folder / "early.py"
    job.write_text("from mpi4py import MPI\nimport tf_smddp\ntf_smddp.init()\n")
    changes = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(pathlib.Path(sys.prefix) / "lib")}
    ended = run(bench, hosts, "1,1", [sys.executable, job], SMDDP_BOOTSTRAP_TIMEOUT="5", **changes)
    assert ended.code != 0, ended.output
    assert "call it before mpi4py.MPI is imported" in ended.output, ended.output


WAITS = """
import os, sys
import tensorflow as tf
import tf_smddp as sdp
os.write(1, f"pid: {os.getpid()}\\n".encode())
sdp.init()
total = sdp.allreduce(tf.constant([1 + sdp.rank()]), 0, 1, op=sdp.ReduceOp.SUM).numpy()[0]
os.write(1, f"who: rank {sdp.rank()} of {sdp.size()}, sum {total}\\n".encode())
"""


@pytest.mark.long
def test_an_earlier_attempt_of_the_job(bench, hosts):
    """Its process manager refuses the next attempt's ranks, which wait for their own."""
    job = bench.folder / "waits.py"
    job.write_text(WAITS)
    words = [sys.executable, job]
    earlier = start(bench, hosts, 0, "1,1", words)
    wait_for(earlier, lambda output: "pid: " in output, 60)
    refused = start(bench, hosts, 1, "1,1", words, restarts=1, SMDDP_BOOTSTRAP_TIMEOUT="2").finish()
    assert "it is the one of another job" in refused.output, refused.output
    sockets = bench.start(*hosts.on("h0", ["cat", "/proc/self/net/tcp"])).finish().output
    (address,) = re.findall(rf" ([0-9A-F]+):{PORT + 1:04X} 00000000:0000 0A", sockets)
    assert address != "00000000", "it listens at the address of MASTER_ADDR alone"
    agents = [start(bench, hosts, 1, "1,1", words, restarts=1)]
    wait_for(agents[0], lambda output: "pid: " in output, 60)
    os.kill(int(earlier.output().split()[1]), signal.SIGKILL)
    agents.append(start(bench, hosts, 0, "1,1", words, restarts=1))
    ends = [agent.finish() for agent in agents]
    check_who(ends[0]._replace(output="".join(end.output for end in ends)), "who")


@pytest.mark.long
def test_a_rank_of_another_host_is_killed(bench, hosts):
    job = bench.folder / "job.py"
    job.write_text(STEPS.replace("COUNT", "1"))
    agents = [start(bench, hosts, node, "1,1", [sys.executable, job]) for node in (0, 1)]
    for rank, agent in enumerate(agents):
        wait_for(agent, lambda output, rank=rank: f"steps: {rank}" in output, 60)
    for pid in bench.processes():
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if str(job).encode() == command[1] and b"RANK=1" in variables:
            os.kill(pid, signal.SIGKILL)
    ended = agents[0].finish(10)
    assert agents[1].finish(10).code != 0
    assert ended.code != 0, ended.output
    # MPICH's transport may crash when it sends to a process that has died.
    crashed = ended.code == signal.SIGSEGV
    assert crashed or re.search(r"error on 0: .*rank 1", ended.output), ended.output
