"""SageMaker's training toolkit starts ranks by its runner for SMDataParallel, and our smddprun.

It starts parameter servers by itself. The toolkit is PyPI's, unmodified; sagemaker_cluster.py has its
containers. After a job it waits for 30 s.
"""

import re

import pytest
from sagemaker_cluster import SageMakerCluster

pytestmark = pytest.mark.long
# The toolkit imports much, waits for 30 s at the end, and on the second container twice.
LIMIT_SECONDS = 400

# A script as SMDDP's users have it. Its ranks begin with different weights, and see different data.
SCRIPT = """
import argparse, hashlib, socket
import numpy as np
import tensorflow as tf
import smdistributed.dataparallel.tensorflow as sdp

parser = argparse.ArgumentParser()
parser.add_argument("--fail", default="")
fail = parser.parse_args().fail
sdp.init()
rank, size = sdp.rank(), sdp.size()
weights = [tf.Variable(tf.fill([30, 7], float(rank))), tf.Variable(tf.fill([7], float(rank)))]
x, y = tf.random.stateless_normal([50, 30], [rank, 1]), tf.random.stateless_normal([50, 7], [rank, 2])
for step in range(20):
    if fail == "script" and rank == size - 1 and step == 5:
        raise ValueError("no data are left")
    if fail == "shapes" and step == 5:
        sdp.allreduce(tf.zeros(1 + rank), 0, 1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights[0] + weights[1] - y) ** 2)
    tape = sdp.DistributedGradientTape(tape)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)
    if step == 0:
        sdp.broadcast_variables(weights, root_rank=0)
total = sdp.oob_allreduce(tf.constant(float(rank)), op=sdp.ReduceOp.SUM).numpy()
digest = hashlib.sha256(b"".join(weight.numpy().tobytes() for weight in weights)).hexdigest()
place = f"rank {rank} of {size}, local {sdp.local_rank()} of {sdp.local_size()}"
print(f"trained: {place} on {socket.gethostname()}, {total}, {digest}", flush=True)
"""


@pytest.fixture
def cluster(bench):
    """Returns a function that makes the containers of a job."""

    def make(count, text=SCRIPT, ranks=2, **hyperparameters):
        script = bench.folder / "code" / "train.py"
        script.parent.mkdir()
        script.write_text(text)
        return SageMakerCluster(bench.folder / "cluster", count, script, ranks, hyperparameters)

    return make


@pytest.mark.parametrize("count", [1, 2])
def test_training(bench, cluster, count):
    with cluster(count) as job:
        containers = [bench.start(*job.train(name), **job.environ()) for name in job.names]
        ends = [container.finish(LIMIT_SECONDS) for container in containers]
        told = job.status_file.exists()
    output = "\n".join(end.output for end in ends)
    assert [end.code for end in ends] == [0] * count, output
    assert all("Reporting training SUCCESS" in end.output for end in ends), output
    assert "smddprun" in ends[0].output and "smddprun not being used" not in output, output
    assert told == (count == 2), output
    # Open MPI may put the tag of the next line at the end of one, or write two in one.
    lines = sorted(re.findall(r"trained: (rank [^\n]*?[0-9a-f]{64})", output))
    size = 2 * count
    places = [
        f"rank {rank} of {size}, local {rank % 2} of 2 on algo-{1 + rank // 2}, {size * (size - 1) / 2}, "
        for rank in range(size)
    ]
    assert len(lines) == size, output
    assert [line[: len(place)] for line, place in zip(lines, places)] == places, output
    assert len({line.split()[-1] for line in lines}) == 1, f"the ranks have different weights:\n{output}"


@pytest.mark.parametrize(
    "count, fail, error, text",
    [
        (1, "script", "ValueError", "no data are left"),
        (1, "shapes", "InternalError", "the ranks run different collectives"),
        (2, "shapes", "InternalError", "the ranks run different collectives"),
    ],
)
def test_a_failure_is_reported(bench, cluster, count, fail, error, text):
    """SageMaker shows what the toolkit finds in the ranks' stderr."""
    with cluster(count, fail=fail) as job:
        containers = [bench.start(*job.train(name), **job.environ()) for name in job.names]
        ended = containers[0].finish(LIMIT_SECONDS)
        # The toolkit tells nothing to the other containers, which SageMaker ends.
        reason = job.failure("algo-1")
    assert ended.code == 1, ended.output
    assert "Reporting training FAILURE" in ended.output, ended.output
    assert text in reason, reason
    # Its class is one of smdistributed.dataparallel.exceptions. After an error of the script it is the other
    # ranks', unless mpirun has ended them before they could write it.
    classes = ("InternalError", "ExecuteUserScriptError") if fail == "script" else ("InternalError",)
    assert reason.startswith(tuple(f"{each}:\nExitCode " for each in classes)), reason
    assert error in reason, reason


# A script as the toolkit's script mode runs it, with parameter servers. The toolkit ends a host's server soon
# after the host's script, so the scripts wait for each other.
ASYNCHRONOUS = """
import json, os, time
import tensorflow.compat.v1 as tf
import smdistributed.dataparallel.tensorflow as sdp

sdp.init()
tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
server = tf.train.Server(cluster, task["type"], task["index"])
is_master = task["type"] == "master"
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{task['type']}")):
    x = tf.random.stateless_normal([16, 8], [3, 4])
    weight, bias = tf.get_variable("weight", [8, 1]), tf.get_variable("bias", [1])
    loss = tf.reduce_mean((x @ weight + bias - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    arrived = tf.get_variable("arrived", [], tf.int32, tf.zeros_initializer())
    arrive = arrived.assign_add(1)
with tf.train.MonitoredTrainingSession(server.target, is_chief=is_master) as session:
    session.run(arrive)
    while session.run(arrived) < 2:
        time.sleep(0.01)
    while session.run(step) < 300:
        session.run(train)
    found = session.run(loss)
    session.run(arrive)
    while session.run(arrived) < 4:
        time.sleep(0.01)
place = f"{task['type']} {task['index']}, rank {sdp.rank()} of {sdp.size()}"
print(f"trained: {place}, {found < 1e-3}, {weight.device} {bias.device}", flush=True)
time.sleep(0 if is_master else 5)
"""


def test_parameter_servers(bench, cluster):
    with cluster(2, ASYNCHRONOUS, ranks=0) as job:
        containers = [bench.start(*job.train(name), **job.environ()) for name in job.names]
        ends = [container.finish(LIMIT_SECONDS) for container in containers]
    output = "\n".join(end.output for end in ends)
    assert [end.code for end in ends] == [0, 0], output
    for end, role in zip(ends, ("master", "worker"), strict=True):
        expected = f"trained: {role} 0, rank 0 of 1, True, /job:ps/task:0 /job:ps/task:1"
        assert end.lines("trained: ") == [expected], output
    assert "TF_CONFIG is set" not in output, output
