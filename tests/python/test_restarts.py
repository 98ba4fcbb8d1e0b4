"""smddprun --max-restarts and sdp.Checkpoint: ranks that die cost steps, and never a wrong weight."""

import pytest
from harness import run_job

STEPS = 12

# The data of a step follow from its number, and a kill from the number of the try. The generator is each
# rank's own, and part of the checkpoint.
JOB = f"""
import random, signal
import numpy as np, tensorflow as tf
folder, kills = sys.argv[1], int(sys.argv[2])
tries = int(os.environ["SMDDP_RESTART_COUNT"])
sdp.init()
weight, speed = tf.Variable(tf.ones([1000])), tf.Variable(tf.zeros([1000]))
noise = tf.random.Generator.from_seed(sdp.rank())
checkpoint = sdp.Checkpoint(folder, weight=weight, speed=speed, per_rank={{"noise": noise}}, max_to_keep=2)

@tf.function
def step(number):
    with tf.GradientTape() as tape:
        x = noise.normal([1000]) + number
        loss = tf.reduce_mean((weight * x - 1.0) ** 2)
    gradient = sdp.DistributedGradientTape(tape).gradient(loss, weight)
    speed.assign(0.9 * speed + gradient)
    weight.assign_sub(0.01 * speed)

choice = random.Random(tries)
victim, delay = choice.randrange(sdp.size()), choice.uniform(0.0, 0.3)
first = checkpoint.restore() or 0
if tries < kills and sdp.rank() == victim:
    import threading
    threading.Timer(delay, os.kill, [os.getpid(), signal.SIGKILL]).start()  # in a step, or while it writes
for number in range(first, {STEPS}):
    step(tf.constant(float(number)))
    time.sleep(0.02)
    checkpoint.save(number + 1)
if tries < kills:
    time.sleep(30)  # the victim dies before it has ended
report("weight", weight.numpy().tobytes().hex())
report("tries", tries)
"""


def trained(folder, kills, num_ranks=2, seconds=120, **arguments):
    options = ["--max-restarts", str(kills + 1)]
    job = run_job(num_ranks, JOB, str(folder), str(kills), options=options, seconds=seconds, **arguments)
    assert job.exit_code == 0, str(job)
    reports = [each for each in job.reports if "weight" in each]
    assert len(reports) == num_ranks and len({each["weight"] for each in reports}) == 1, str(job)
    assert {each["tries"] for each in reports} == {kills}, str(job)
    return reports[0]["weight"], str(job)


def check(folder, kills, **arguments):
    undisturbed, _ = trained(f"{folder}/undisturbed", 0, **arguments)
    disturbed, output = trained(f"{folder}/disturbed", kills, **arguments)
    assert disturbed == undisturbed
    assert output.count("the job has failed, exit code 137; start ") == kills, output


@pytest.mark.one_tensorflow
def test_two_kills(tmp_path):
    check(tmp_path, 2)


@pytest.mark.long
def test_twenty_kills(tmp_path):
    check(tmp_path, 20, num_ranks=3, seconds=900)
