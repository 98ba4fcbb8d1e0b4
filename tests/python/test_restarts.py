"""smddprun --max-restarts and sdp.Checkpoint: ranks that die cost steps, and never a wrong weight.

Also those that die in the middle of a file.
"""

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
def test_a_kill(tmp_path):
    check(tmp_path, 1)


@pytest.mark.long
def test_twenty_kills(tmp_path):
    check(tmp_path, 20, num_ranks=3, seconds=900)


# In try number t, this rank is killed in save(t + 2), in the middle of this file: of its own part, of what is
# shared, or of the one that says which checkpoint is the latest.
PLACES = [(1, "ranks/2/rank-1-of-2"), (0, "ckpt-3"), (0, "checkpoint")]

KILLED_WHILE_IT_WRITES = f"""
import glob, pathlib, signal
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import gen_io_ops
folder, tries = sys.argv[1], int(os.environ["SMDDP_RESTART_COUNT"])
sdp.init()
rank, place = ([*{PLACES}, (None, None)])[tries]
place = os.path.join(folder, place) if sdp.rank() == rank else None

def die():
    files = [str(file.relative_to(folder)) for file in pathlib.Path(folder).rglob("*") if file.is_file()]
    report("files of try %d" % tries, sorted(files))
    os.kill(os.getpid(), signal.SIGKILL)

merge, write_at_once = gen_io_ops.merge_v2_checkpoints, file_io.atomic_write_string_to_file

def merge_or_die(parts, path, *args, **kwargs):
    if path.numpy().decode() == place:
        (data,) = glob.glob(place + "_temp/*.data-*")
        os.truncate(data, os.path.getsize(data) // 2)
        die()
    return merge(parts, path, *args, **kwargs)

def write_or_die(path, content, *args, **kwargs):
    if path == place and saved == tries + 2:
        pathlib.Path(path + ".tmp" + "0" * 32).write_text(content[: len(content) // 2])
        die()
    write_at_once(path, content, *args, **kwargs)

gen_io_ops.merge_v2_checkpoints, file_io.atomic_write_string_to_file = merge_or_die, write_or_die
shared, own = tf.Variable(tf.zeros([1000])), tf.Variable(0.0)
checkpoint = sdp.Checkpoint(folder, shared=shared, per_rank={{"own": own}}, max_to_keep=2)
first = checkpoint.restore() or 0
report("try %d" % tries, [first, float(shared[0]), float(shared[-1]), float(own)])
for number in range(first + 1, {STEPS} + 1):
    shared.assign_add(sdp.allreduce(tf.fill([1000], float(number)), op=sdp.ReduceOp.SUM))
    own.assign_add(number * (1.0 + sdp.rank()))
    saved = number
    checkpoint.save(number)
report("end", [float(shared[0]), float(shared[-1]), float(own)])
"""


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_kills_in_the_middle_of_a_file(tmp_path):
    folder = tmp_path / "checkpoints"
    job = run_job(2, KILLED_WHILE_IT_WRITES, str(folder), options=["--max-restarts", "3"])
    assert job.exit_code == 0, str(job)
    assert job.output.count("the job has failed, exit code 137; start ") == len(PLACES), str(job)

    def sum_until(step):
        return step * (step + 1) / 2

    for rank, report in enumerate(job.reports):
        for step in range(len(PLACES) + 1):  # as many steps are whole when a try begins
            wanted = [2 * sum_until(step), 2 * sum_until(step), (1 + rank) * sum_until(step)]
            assert report[f"try {step}"] == [step, *wanted], str(job)
        assert report["end"] == [2 * sum_until(STEPS), 2 * sum_until(STEPS), (1 + rank) * sum_until(STEPS)]

    found = [set(job.reports[rank][f"files of try {number}"]) for number, (rank, _) in enumerate(PLACES)]
    for files, (_, name) in zip(found, PLACES[:2]):
        assert any(file.startswith(f"{name}_temp/") for file in files), files
        assert f"{name}.index" not in files, files
    assert {"ckpt-4.index", "checkpoint", "checkpoint.tmp" + "0" * 32} <= found[2], found[2]
    # Nothing half-written is left.
    names = sorted(file.name for file in folder.iterdir())
    data = [f"ckpt-{step}.{kind}" for step in (STEPS - 1, STEPS) for kind in ("data-00000-of-00001", "index")]
    assert names == ["checkpoint", *sorted(data), "ranks"], names
