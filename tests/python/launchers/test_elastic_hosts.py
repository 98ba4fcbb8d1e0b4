"""Jobs that outlive hosts: --min-np and --max-restarts. The hosts are network namespaces of this machine."""

import os
import pathlib
import re
import sys

import mpi_launchers
import pytest
from test_hosts import wait_for
from virtual_hosts import VirtualHosts, agent_variables

FAMILIES = ("openmpi4", "mpich")
RECORDS, EPOCHS = 240, 3


def start(bench, hosts, family, words, **changes):
    """Starts smddprun on h0, with a rank on each of three hosts, or on as many as answer."""
    path = os.pathsep.join([str(pathlib.Path(mpi_launchers.program(family)).parent), os.environ["PATH"]])
    options = ["--min-np", "1", "--max-restarts", "3", "-H", "h0:1,h1:1,h2:1", "--no-tag-output"]
    command = [sys.executable, "-m", "smddprun", *options, *words]
    changes = {"PATH": path, **agent_variables(family, hosts), **changes}
    return bench.start(*hosts.on("h0", command), **changes)


WAITS = 'echo "start $SMDDP_RESTART_COUNT on $(hostname)"; [ "$SMDDP_RESTART_COUNT" != 0 ] || exec sleep 600'


@pytest.mark.parametrize("family", ["mpich", pytest.param("openmpi4", marks=pytest.mark.long)])
def test_a_host_that_is_cut_off_while_no_rank_communicates(bench, family):
    with VirtualHosts(3) as hosts:
        running = start(bench, hosts, family, ["bash", "-c", WAITS], SMDDP_HOST_TIMEOUT="2")
        wait_for(running, lambda output: output.count("start 0 on h") == 3, 60)
        hosts.cut("h2")
        ended = running.finish(90)
        hosts.mend("h2")  # or what MPI has started there would not know that the job has ended
    assert ended.code == 0, ended.output
    assert "smddprun: host h2 is lost: no sign of life for 2 s; the job is ended" in ended.output
    assert ended.lines("start 1 ") == ["start 1 on h0", "start 1 on h1"], ended.output


# `counts` is a part of the training's state: how often it has had each record, in each epoch. It is saved
# where what is left of the epoch has whole batches for two ranks and for three.
TRAINING = """
import os, pathlib, sys, time
import tensorflow as tf
import tf_smddp as sdp

folder, batch = pathlib.Path(sys.argv[1]), 2
sdp.init()
counts = tf.Variable(tf.zeros([EPOCHS, RECORDS]))
weight = tf.Variable(0.0)
epoch, seen = tf.Variable(0), tf.Variable(0, dtype=tf.int64)
optimizer = tf.keras.optimizers.SGD(0.01 * sdp.size())
state = {"counts": counts, "weight": weight, "epoch": epoch, "seen": seen}
checkpoint = sdp.Checkpoint(folder / "checkpoints", **state)
step = checkpoint.restore() or 0

def say(text):
    os.write(1, f"{text}\\n".encode())

place = f"rank {sdp.rank()} of {sdp.size()} on {os.uname().nodename}"
say(f"start {os.environ['SMDDP_RESTART_COUNT']}: {place}, {int(epoch)} {int(seen)}")

def train_step(numbers):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((weight - tf.cast(numbers, tf.float32)) ** 2)
    gradients = sdp.DistributedGradientTape(tape).gradient(loss, [weight])
    optimizer.apply_gradients(zip(gradients, [weight]))
    hits = tf.reduce_sum(tf.one_hot(numbers, RECORDS), axis=0)
    hits = sdp.allreduce(hits, 0, 1, op=sdp.ReduceOp.SUM)
    counts.scatter_nd_add([[int(epoch)]], hits[None])

while int(epoch) < EPOCHS:
    numbers = tf.data.Dataset.range(RECORDS)
    numbers = numbers.shuffle(RECORDS, seed=int(epoch), reshuffle_each_iteration=False)
    for own in sdp.shard(numbers, batch, skip=int(seen)):
        train_step(own)
        seen.assign_add(batch * sdp.size())
        step += 1
        time.sleep(0.05)
        if int(seen) % 12 == 0:
            checkpoint.save(step)
            if sdp.rank() == 0:
                say(f"saved {int(epoch)} {int(seen)} by {sdp.size()}")
        if sdp.rank() == 1 and (folder / "fail").exists():
            (folder / "fail").unlink()
            raise ValueError("told to fail")
    epoch.assign_add(1)
    seen.assign(0)

weights = sdp.allgather_object(float(weight))
found = sorted(set(counts.numpy().flatten().tolist()))
say(f"end: {sdp.size()} ranks, {len(set(weights))} weight, counts {found}")
"""


@pytest.mark.long
@pytest.mark.parametrize("comes_back", [False, True], ids=["gone", "back"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_record_is_had_once_in_each_epoch(bench, family, comes_back):
    job = bench.folder / "training.py"
    job.write_text(TRAINING.replace("RECORDS", str(RECORDS)).replace("EPOCHS", str(EPOCHS)))
    with VirtualHosts(3) as hosts:
        words = [sys.executable, job, bench.folder]
        running = start(bench, hosts, family, words, SMDDP_HOST_TIMEOUT="5")
        wait_for(running, lambda output: "saved 1 24 by 3" in output, 120)
        hosts.cut("h2")
        wait_for(running, lambda output: output.count("start 1: ") == 2, 120)
        hosts.mend("h2")
        if comes_back:
            wait_for(running, lambda output: re.search(r"saved \d \d+ by 2", output), 60)
            (bench.folder / "fail").touch()
        ended = running.finish(240)
    assert ended.code == 0, ended.output
    assert "smddprun: host h2 is lost: " in ended.output
    size = 3 if comes_back else 2
    starts = [re.findall(rf"^start {number}: (.*), (\d) (\d+)$", ended.output, re.M) for number in range(3)]
    assert [len(each) for each in starts] == ([3, 2, 3] if comes_back else [3, 2, 0]), ended.output
    for number, each in enumerate(filter(None, starts)):
        places = [f"rank {rank} of {len(each)} on h{rank}" for rank in range(len(each))]
        assert sorted(place for place, *_ in each) == places, ended.output
        (position,) = {(int(epoch), int(seen)) for _, epoch, seen in each}
        assert position == (0, 0) if number == 0 else position >= (1, 24), ended.output
    assert ended.lines("end: ") == [f"end: {size} ranks, 1 weight, counts [1.0]"] * size, ended.output
