"""Jobs of several hosts, which MPI joins. The hosts are network namespaces of this machine."""

import os
import pathlib
import re
import signal
import sys
import time

import mpi_launchers
import pytest
from foreign_jobs import check_who, digits
from virtual_hosts import VirtualHosts, agent_variables, mpirun

COLLECTIVES = pathlib.Path(__file__).parent / "collectives_job.py"
MATRIX = pathlib.Path(__file__).parent / "matrix_job.py"
KINDS = ("openmpi4", "openmpi5", "mpich")
# The ranks of each host.
LAYOUTS = ((1, 1), (2, 2), (3, 3), (3, 2, 1))
# Variables that smddprun's option sets.
INTERFACES = ("_if_include", "_IFACE")
# Six ranks share this machine's cores.
LONG_SECONDS = 400


def layout_name(counts):
    return "+".join(map(str, counts))


def wait_for(running, condition, seconds):
    """Waits until a condition on a command's output holds."""
    deadline = time.monotonic() + seconds
    while not condition(running.output()):
        assert time.monotonic() < deadline, running.output()
        time.sleep(0.05)


def launch(kind, hosts, counts, words):
    """The words that run a command as a job, on the first host."""
    ranks = dict(zip(hosts.names, counts, strict=True))
    return hosts.on(hosts.names[0], [*mpirun(kind, hosts, ranks, mpi_launchers.program(kind)), *words])


def check_collectives(ended, counts):
    """Checks what the ranks of collectives_job.py say."""
    assert ended.code == 0, ended.output
    size = sum(counts)
    lines = ended.lines("all: ")
    assert len(lines) == size, ended.output
    places = [f"local {local} of {count}" for count in counts for local in range(count)]
    for rank, (line, place) in enumerate(zip(lines, places, strict=True)):
        assert line.startswith(f"all: rank {rank} of {size}, {place}, "), ended.output
    check_that_digests_are_equal(ended, lines)


def check_that_digests_are_equal(ended, lines):
    assert len({line.split()[-1] for line in lines}) == 1, (
        f"the ranks have different results:\n{ended.output}"
    )


def test_collectives(bench):
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (2, 1), [sys.executable, COLLECTIVES, "all"])
        check_collectives(bench.run(*words), (2, 1))


@pytest.mark.long
def test_the_standard_abi(bench):
    """MPICH 5 has a library of MPI's standard ABI, too."""
    library = pathlib.Path(sys.prefix) / "lib" / "libmpi_abi.so.1"
    with VirtualHosts(2) as hosts:
        words = launch("mpich", hosts, (2, 1), [sys.executable, COLLECTIVES, "all"])
        changes = {"SMDDP_MPI_LIBRARY": str(library), "SMDDP_LOG_LEVEL": "info"}
        ended = bench.run(*words, **changes)
    assert f"{library}" in ended.output, ended.output
    check_collectives(ended, (2, 1))


@pytest.mark.long
@pytest.mark.parametrize(
    "kind, counts, rate",
    [
        *(
            pytest.param(kind, counts, None, id=f"{kind}-{layout_name(counts)}")
            for kind in KINDS
            for counts in LAYOUTS
        ),
        pytest.param("openmpi4", (2, 1), "200mbit", id="openmpi4-2+1-slow"),
    ],
)
def test_matrix(bench, kind, counts, rate):
    """Each collective with all types, operations and kinds of sizes, process sets, and failed steps."""
    with VirtualHosts(len(counts), rate) as hosts:
        running = bench.start(*launch(kind, hosts, counts, [sys.executable, MATRIX, "all"]))
        ended = running.finish(LONG_SECONDS)
    check_collectives(ended, counts)
    lines = ended.lines("matrix: ")
    assert len(lines) == sum(counts), ended.output
    check_that_digests_are_equal(ended, lines)


@pytest.mark.long
@pytest.mark.parametrize("counts", LAYOUTS, ids=layout_name)
@pytest.mark.parametrize("kind", KINDS)
def test_digits(bench, kind, counts):
    with VirtualHosts(len(counts)) as hosts:
        ended = bench.start(*launch(kind, hosts, counts, digits())).finish(LONG_SECONDS)
    assert ended.code == 0, ended.output
    assert "weights        equal to the bit on all ranks" in ended.output, ended.output


WHO_FOR_TORCH = (
    'echo "torch: $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"; exec "$@"'
)


@pytest.mark.parametrize(
    "family, option",
    [
        ("mpich", "-H"),
        pytest.param("openmpi4", "-H", marks=pytest.mark.long),
        pytest.param("openmpi4", "--hostfile", marks=pytest.mark.long),
    ],
)
def test_smddprun(bench, family, option):
    """The ranks of the hosts that are named, through the MPI that is first in PATH."""
    path = os.pathsep.join([str(pathlib.Path(mpi_launchers.program(family)).parent), os.environ["PATH"]])
    hostfile = bench.folder / "hosts"
    hostfile.write_text("h0 slots=2\nh1 slots=1\n")
    words = [sys.executable, "-m", "smddprun", option, "h0:2,h1:1" if option == "-H" else hostfile]
    words += ["-p", "2222", "-i", "/the/key", "--network-interfaces", "eth0"]
    words += ["--no-tag-output", "bash", "-c", WHO_FOR_TORCH, "bash", sys.executable, bench.who, "smddprun"]
    with VirtualHosts(2) as hosts:
        found = agent_variables(family, hosts)
        changes = {"PATH": path, **{name: found[name] for name in found if not name.endswith(INTERFACES)}}
        ended = bench.run(*hosts.on("h0", words), **changes)
        check_who(ended, "smddprun", 3)
        calls = hosts.agent_calls()
    *places, port = zip(*(line.split()[1:] for line in ended.lines("torch: ")), strict=True)
    assert list(zip(*places, strict=True)) == [
        ("0", "3", "0", "2", "h0"),
        ("1", "3", "1", "2", "h0"),
        ("2", "3", "0", "1", "h0"),
    ], ended.output
    assert len(set(port)) == 1 and int(port[0]) > 1024, ended.output
    to_h1 = [call for call in calls if "h1" in call]
    assert to_h1 and all("-p 2222 -i /the/key" in call for call in to_h1), calls


@pytest.mark.long
@pytest.mark.parametrize("family", ["mpich", "openmpi4"])
def test_smddprun_check(bench, family):
    """A report of each host, and a self test with a rank on each."""
    path = os.pathsep.join([str(pathlib.Path(mpi_launchers.program(family)).parent), os.environ["PATH"]])
    words = [sys.executable, "-m", "smddprun", "--check", "-H", "h0:2,h1:2", "--timeout", "120"]
    with VirtualHosts(2) as hosts:
        changes = {"PATH": path, **agent_variables(family, hosts)}
        ended = bench.run(*hosts.on("h0", words), **changes)
    assert ended.code == 0, ended.output
    reports = [line for line in ended.output.splitlines() if line.endswith(":")]
    assert reports == ["h0:", "h1:", "all hosts:"], ended.output
    library = "MPICH Version" if family == "mpich" else "Open MPI v4"
    assert len(ended.lines(f"  MPI library     {library}")) == 2, ended.output
    expected = "  self test       2 ranks on h0 (CPU:0), h1 (CPU:0): each collective is right"
    assert ended.lines("  self test") == [expected], ended.output


# A coordinator, which goes on for as long as it may when it has an argument.
COORDINATOR = """
import sys
import tensorflow as tf

strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    parts = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]

@tf.function
def step(number):
    for part in parts:
        part.assign_add(number)

for number in range(100):
    coordinator.schedule(step, args=(tf.constant(number, tf.int64),))
coordinator.join()
print(f"sums {[int(part) for part in parts]} on {sorted(part.device for part in parts)}", flush=True)
while sys.argv[1:]:
    coordinator.schedule(step, args=(tf.constant(0, tf.int64),))
    coordinator.join()
"""


def start_coordinator(bench, hosts, family, *arguments):
    """Starts a chief on the first of two hosts, and a worker and a parameter server on each."""
    path = os.pathsep.join([str(pathlib.Path(mpi_launchers.program(family)).parent), os.environ["PATH"]])
    script = bench.folder / "coordinator.py"
    script.write_text(COORDINATOR)
    words = [sys.executable, "-m", "smddprun", "-H", "h0:1,h1:1", "--ps", "2", "--no-tag-output"]
    changes = {"PATH": path, **agent_variables(family, hosts)}
    return bench.start(*hosts.on("h0", [*words, sys.executable, script, *arguments]), **changes)


@pytest.mark.long
@pytest.mark.parametrize("family", ["mpich", "openmpi4"])
def test_parameter_servers(bench, family):
    with VirtualHosts(2) as hosts:
        ended = start_coordinator(bench, hosts, family).finish()
    assert ended.code == 0, ended.output
    names = "0 is chief, 1 is worker 0, 2 is ps 0, 3 is worker 1, 4 is ps 1"
    assert f"smddprun: note: of the ranks {names}" in ended.output, ended.output
    devices = [f"/job:ps/replica:0/task:{number}/device:CPU:0" for number in range(2)]
    assert ended.lines("sums ") == [f"sums [4950, 4950] on {devices}"], ended.output


@pytest.mark.long
@pytest.mark.parametrize("family", ["mpich", "openmpi4"])
def test_a_parameter_server_that_dies(bench, family):
    with VirtualHosts(2) as hosts:
        running = start_coordinator(bench, hosts, family, "on")
        wait_for(running, lambda output: "sums " in output, LONG_SECONDS)
        task = b'"task": {"type": "ps", "index": 1}'
        (victim,) = (
            pid for pid in bench.processes() if task in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        )
        os.kill(victim, signal.SIGKILL)
        ended = running.finish()
    assert ended.code != 0, ended.output
    assert "smddprun: ps 1: killed by SIGKILL, on h1" in ended.output, ended.output


# Each rank has 8 MB, TIMES times.
TRAFFIC = """
import tensorflow as tf
import tf_smddp as sdp
sdp.init()
variable = tf.Variable(tf.ones(2_000_000))
plain = tf.keras.optimizers.Adam(), tf.keras.optimizers.Adafactor()
adam, adafactor = (sdp.DistributedOptimizer(each, shard_state=True) for each in plain)
for _ in range(TIMES):
    CALL
"""
ALLREDUCE = "sdp.allreduce(tf.ones(2_000_000), 0, 1)"
SHARDED = "KIND.apply_gradients([(tf.ones(2_000_000), variable)])"
COMPRESSED = "sdp.allreduce(tf.ones(2_000_000), 0, 1, compression=sdp.Compression.KIND)"


def sent_bytes(bench, counts, call, times):
    """Returns how many bytes each host sends, as its network interface counts them."""
    job = bench.folder / "traffic.py"
    job.write_text(TRAFFIC.replace("CALL", call).replace("TIMES", str(times)))
    with VirtualHosts(len(counts)) as hosts:
        before = [hosts.sent_bytes(name) for name in hosts.names]
        ended = bench.run(*launch("openmpi4", hosts, counts, [sys.executable, job]))
        after = [hosts.sent_bytes(name) for name in hosts.names]
    assert ended.code == 0, ended.output
    return [new - old for new, old in zip(after, before, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize(
    "counts, call, inputs",
    [
        # Each of H hosts must send 2 (H - 1) / H times what it gets, whatever the number of its ranks.
        ((1, 1), ALLREDUCE, (1, 1)),
        ((3, 2), ALLREDUCE, (1, 1)),
        ((2, 2, 1), ALLREDUCE, (4 / 3, 4 / 3, 4 / 3)),
        ((1, 1), COMPRESSED.replace("KIND", "bf16"), (1 / 2, 1 / 2)),
        ((3, 2), COMPRESSED.replace("KIND", "fp16"), (1 / 2, 1 / 2)),
        ((2, 2, 1), COMPRESSED.replace("KIND", "bf16"), (2 / 3, 2 / 3, 2 / 3)),
        # The inputs of its ranks, once for each other host.
        ((3, 2), "sdp.allgather(tf.ones(2_000_000))", (3, 2)),
        ((2, 1, 1), "sdp.allgather(tf.ones(2_000_000))", (4, 2, 2)),
        # A shard for each rank of another host.
        ((3, 2), "sdp.alltoall(tf.ones(2_000_000))", (3 * 2 / 5, 2 * 3 / 5)),
        # The sum of its ranks, of the shard of each rank of another host.
        ((3, 2), "sdp.reducescatter(tf.ones(2_000_000))", (2 / 5, 3 / 5)),
        # Both: as an allreduce, but that hosts with more ranks have more parts.
        ((1, 1), SHARDED.replace("KIND", "adam"), (1, 1)),
        ((3, 2), SHARDED.replace("KIND", "adam"), (1, 1)),
        ((2, 2, 1), SHARDED.replace("KIND", "adam"), (7 / 5, 7 / 5, 6 / 5)),
        # The owner, rank 0, gets the sum, and sends the weights.
        ((1, 1), SHARDED.replace("KIND", "adafactor"), (1, 1)),
        ((3, 2), SHARDED.replace("KIND", "adafactor"), (1, 1)),
        ((2, 2, 1), SHARDED.replace("KIND", "adafactor"), (2, 1, 1)),
    ],
)
def test_a_host_sends_each_byte_as_often_as_it_must(bench, counts, call, inputs):
    times = 10
    # The bytes of the launcher, and of the start and end of the job.
    without = sent_bytes(bench, counts, call, 0)
    sent = [all_ - rest for all_, rest in zip(sent_bytes(bench, counts, call, times), without, strict=True)]
    for each, number in zip(sent, inputs, strict=True):
        least = times * 8e6 * number
        assert 0.99 * least < each < 1.02 * least, (sent, without, least)


ONE_FAILS = """
import os, sys
import tensorflow as tf
import tf_smddp as sdp
sdp.init()
sdp.allreduce(tf.ones(10), 0, 1)
if sdp.rank() == 1:
    raise ValueError("out of data")
try:
    sdp.allreduce(tf.ones(10), 0, 1)
except tf.errors.InternalError as error:
    os.write(1, f"error on {sdp.rank()}: {error.message}\\n".encode())
    sys.exit(3)
"""


@pytest.mark.parametrize("counts", [(1, 1), pytest.param((2, 2), marks=pytest.mark.long)], ids=layout_name)
def test_a_rank_that_ends_on_another_host(bench, counts):
    # MPI's launchers end all processes when one is killed; this one ends by itself, with an error.
    job = bench.folder / "one_fails.py"
    job.write_text(ONE_FAILS)
    with VirtualHosts(2) as hosts:
        ended = bench.run(*launch("openmpi4", hosts, counts, [sys.executable, job]))
    assert ended.code != 0, ended.output
    for rank in set(range(sum(counts))) - {1}:
        text = rf"error on {rank}: .*rank 1.*ValueError: out of data"
        assert re.search(text, ended.output), ended.output


AGAIN = """
import os, signal, threading, time
import numpy as np
import tensorflow as tf
import tf_smddp as sdp
for i in range(3):
    sdp.init()
    total = float(sdp.allreduce(np.float32(sdp.rank() + i), op=sdp.ReduceOp.SUM))
    os.write(1, f"round {i}: {total}\\n".encode())
    if i < 2:
        sdp.shutdown()
if sdp.rank() == 0:
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        sdp.shutdown()
        os.write(1, b"ended in order\\n")
    except KeyboardInterrupt:
        os.write(1, b"interrupted\\n")
else:
    time.sleep(6)
    try:
        sdp.barrier()
    except tf.errors.OpError as error:
        os.write(1, f"error: {error.message}\\n".encode())
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["openmpi4", "mpich"])
def test_init_again_and_ctrl_c_in_shutdown(bench, kind):
    """The rounds share MPI's communicator. The last shutdown() of rank 0 waits for rank 1."""
    job = bench.folder / "again.py"
    job.write_text(AGAIN)
    with VirtualHosts(2) as hosts:
        ended = bench.run(*launch(kind, hosts, (1, 1), [sys.executable, job]))
    for i in range(3):
        assert ended.lines(f"round {i}: ") == [f"round {i}: {1.0 + 2 * i}"] * 2, ended.output
    assert ended.lines("interrupted"), ended.output
    assert not ended.lines("ended in order"), ended.output
    assert re.search(r"error: .*rank 0 was interrupted in shutdown\(\)", ended.output), ended.output


def test_a_library_that_is_not_the_launchers(bench):
    words = [sys.executable, bench.who, "who"]
    library = pathlib.Path(sys.executable).parent.parent / "lib" / "libmpi.so.12"
    with VirtualHosts(2) as hosts:
        ended = bench.run(*launch("openmpi4", hosts, (1, 1), words), SMDDP_MPI_LIBRARY=str(library))
    assert ended.code != 0, ended.output
    assert f"{library}) is not the library of Open MPI's mpirun" in ended.output, ended.output


@pytest.mark.long
def test_ranks_that_mpi_does_not_know(bench):
    words = ["env", "SMDDP_RANK=0", "SMDDP_SIZE=4", "SMDDP_LOCAL_RANK=0", "SMDDP_LOCAL_SIZE=1"]
    words += [sys.executable, bench.who, "who"]
    with VirtualHosts(2) as hosts:
        ended = bench.run(*launch("openmpi4", hosts, (1, 1), words), SMDDP_JOB_ID="a-run")
    assert ended.code != 0, ended.output
    assert "MPI says that this is rank 0 of 2, and smddprun that it is rank 0 of 4" in ended.output, (
        ended.output
    )
    assert "set SMDDP_MPI_LIBRARY to the path of the launcher's libmpi.so" in ended.output, ended.output


@pytest.mark.long
def test_no_library(bench):
    words = [sys.executable, bench.who, "who"]
    with VirtualHosts(2) as hosts:
        ended = bench.run(*launch("openmpi4", hosts, (1, 1), words), SMDDP_MPI_LIBRARY="/nowhere/libmpi.so")
    assert ended.code != 0, ended.output
    assert "no MPI library can be opened: /nowhere/libmpi.so: cannot open" in ended.output, ended.output


STEPS = """
import os, sys, time
import tensorflow as tf
import tf_smddp as sdp
sdp.init()
x = tf.ones(COUNT)
for step in range(100_000):
    try:
        sdp.allreduce(x, 0, 1)
    except tf.errors.InternalError as error:
        os.write(1, f"error on {sdp.rank()}: {error.message}\\n".encode())
        sys.exit(3)
    if step == 10:
        os.write(1, f"steps: {sdp.rank()}\\n".encode())
"""


@pytest.mark.parametrize("count", [1, pytest.param(3_000_000, marks=pytest.mark.long)])
def test_a_link_that_goes_down(bench, count):
    job = bench.folder / "steps.py"
    job.write_text(STEPS.replace("COUNT", str(count)))
    with VirtualHosts(2) as hosts:
        words = launch("openmpi4", hosts, (1, 1), [sys.executable, job])
        running = bench.start(*words, SMDDP_HOST_TIMEOUT="3")
        wait_for(running, lambda output: output.count("steps: ") == 2, 60)
        hosts.cut("h1")
        # 3 s without a beat, which are a second apart; and 5 s, since this machine may be busy.
        wait_for(running, lambda output: "error on 0" in output, 3 + 1 + 5)
        hosts.mend("h1")  # or mpirun would not reach the other host
        ended = running.finish()
    assert ended.code != 0, ended.output
    assert "the connection to rank 1 on another host was lost (h1 has been silent for 3 s" in ended.output


WITH_MPI4PY = """
import os
from mpi4py import MPI
import tensorflow as tf
import tf_smddp as sdp
world = MPI.COMM_WORLD
for _ in range(2):
    sdp.init()
    for _ in range(20):
        ranks = world.allreduce(1)
        mean = sdp.allreduce(tf.fill([100_000], float(sdp.rank())), 0, 1).numpy()[-1]
    sdp.shutdown()
world.Barrier()
os.write(1, f"shared: rank {world.rank}, {ranks} ranks, mean {mean}, {MPI.Is_finalized()}\\n".encode())
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["openmpi4", "mpich"])
def test_a_program_that_uses_mpi_itself(bench, kind):
    job = bench.folder / "shared.py"
    job.write_text(WITH_MPI4PY)
    family = "openmpi" if kind == "openmpi4" else "mpich"
    with VirtualHosts(2) as hosts:
        # mpi4py looks where the system does.
        changes = {"MPI4PY_MPIABI": family, "LD_LIBRARY_PATH": str(pathlib.Path(sys.prefix) / "lib")}
        ended = bench.run(*launch(kind, hosts, (1, 1), [sys.executable, job]), **changes)
    assert ended.code == 0, ended.output
    expected = [f"shared: rank {rank}, 2 ranks, mean 0.5, False" for rank in range(2)]
    assert ended.lines("shared: ") == expected, ended.output
