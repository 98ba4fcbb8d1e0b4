"""Which GPU a rank uses is chosen after `init()`; what is hardly meant gets one line in the log."""

import re

import pytest
from harness import run_job
from pretend_gpu import FOLDER

# As SMDDP's and Horovod's scripts begin.
INIT = """
sdp.init()
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
"""
OWN_GPU = 'tf.config.set_visible_devices(gpus[sdp.local_rank()], "GPU")\n'

REDUCE = """
def check(device="/GPU:0"):
    with tf.device(device):
        x = tf.fill([2000], sdp.rank() + 1.0)
        found = sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM)
    assert found.numpy().tolist() == [sum(range(1, sdp.size() + 1))] * 2000
    return found.device[-5:]

report("device", [check() for _ in range(3)][0])
report("gpus", len(tf.config.list_logical_devices("GPU")))
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
"""


def run(script, num_ranks):
    job = run_job(num_ranks, script)
    assert job.exit_code == 0, str(job)
    return job


def warnings(job):
    return [line for line in job.output.splitlines() if "tf_smddp rank" in line and " warning] " in line]


def test_the_choice_after_init(gpus):
    """`init()` begins nothing on a GPU: TensorFlow takes the choice afterwards."""
    gpus(2)
    job = run(INIT + OWN_GPU + REDUCE, 2)
    assert [found["device"] for found in job.reports] == ["GPU:0"] * 2
    assert [found["gpus"] for found in job.reports] == [1, 1]
    assert [found["nccl"] for found in job.reports] == [3 * 8000] * 2
    assert warnings(job) == []


@pytest.mark.long
def test_no_choice(gpus):
    """All ranks on the first GPU: the results are right."""
    gpus(2)
    job = run(INIT + REDUCE, 3)
    (line,) = warnings(job)
    assert "ranks 0, 1, 2 share GPU 0 (UUID " in line
    assert "set_visible_devices(gpus[local_rank()]" in line
    assert [found["nccl"] for found in job.reports] == [0] * 3


@pytest.mark.long
def test_a_rank_without_a_gpu(gpus):
    gpus(2)
    none = 'tf.config.set_visible_devices([] if sdp.rank() == 1 else gpus[sdp.local_rank() // 2], "GPU")\n'
    job = run(INIT + none + REDUCE.replace('"/GPU:0"', '"/GPU:0" if sdp.rank() != 1 else "/CPU:0"'), 3)
    (line,) = warnings(job)
    assert "on a GPU on ranks 0, 2, and in the host's memory on rank 1" in line
    assert "allreduce" in line and "CUDA_VISIBLE_DEVICES" in line
    assert [found["gpus"] for found in job.reports] == [1, 0, 1]


@pytest.mark.long
def test_two_gpus_in_a_rank(gpus):
    gpus(2)
    both = "for number in (0, 1):\n    check(f'/GPU:{(number + sdp.rank()) % 2}')\n"
    job = run(INIT + REDUCE.replace("[check() for _ in range(3)][0]", "None") + both, 2)
    (line,) = warnings(job)
    assert "reduces tensors of GPU" in line and "and of another GPU before" in line


@pytest.mark.long
@pytest.mark.parametrize("num_gpus", [2, 1])
def test_more_ranks_than_gpus(gpus, num_gpus):
    """The script's own error ends the job, and the others say whose it was."""
    gpus(num_gpus)
    job = run_job(3, INIT + OWN_GPU + REDUCE)
    assert job.exit_code == 1, str(job)
    assert "IndexError: list index out of range" in job.output
    assert re.search(
        r"\[tf_smddp rank 0 error\] stopped in script\.py, line \d+, because of rank [12]", job.output
    )
    assert not job.leftovers, str(job)


def test_without_nccl(gpus, monkeypatch, tmp_path):
    """The results are right, and one line says what would be faster."""
    gpus(2)
    for file in FOLDER.iterdir():
        if not file.name.startswith("libnccl"):
            (tmp_path / file.name).symlink_to(file)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    job = run(INIT + OWN_GPU + REDUCE, 2)
    (line,) = warnings(job)
    assert "tensors of GPU 0 are copied to the host's memory and reduced there" in line
    assert "libnccl.so.2" in line and "pip install nvidia-nccl-cu12" in line
    assert [found["nccl"] for found in job.reports] == [0, 0]


DETERMINISM = "tf.config.experimental.enable_op_determinism()\n"
ONE_GRADIENT = """
v = tf.Variable(1.0)
with tf.GradientTape() as tape:
    loss = v * 2.0
sdp.DistributedGradientTape(tape).gradient(loss, v)
report("variables", [os.environ.get(name) for name in ("SMDDP_DETERMINISTIC", "NCCL_ALGO")])
"""


def test_deterministic_ops_have_deterministic_sums(gpus):
    """A late call is a warning."""
    gpus(2)
    early = run(DETERMINISM + INIT + OWN_GPU + REDUCE + ONE_GRADIENT, 2)
    assert [found["variables"] for found in early.reports] == [["1", "Ring"]] * 2
    assert [found["nccl"] for found in early.reports] == [3 * 8000] * 2
    text = "enable_op_determinism() was called after init()"
    assert text not in early.output
    late = run(INIT + OWN_GPU + DETERMINISM + ONE_GRADIENT, 2)
    assert [found["variables"] for found in late.reports] == [[None, None]] * 2
    assert late.output.count(text) == 2


def test_one_gpu_as_if_each_rank_had_one(gpus, monkeypatch):
    """As tests on a machine with one GPU do."""
    gpus(1)
    for name in ("NCCL_MULTI_RANK_GPU_ENABLE", "PRETEND_GPU_NCCL_CONCURRENT"):
        monkeypatch.setenv(name, "1")
    job = run('os.environ["SMDDP_TEST_OWN_GPU"] = "1"\n' + INIT + REDUCE, 2)
    assert [found["nccl"] for found in job.reports] == [3 * 8000] * 2
    assert warnings(job) == []


STRATEGY = """
strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
with strategy.scope():
    variable = tf.Variable(
        tf.fill([2000], sdp.rank() + 1.0), aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
    )

def replica_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable) * x
    gradient = tape.gradient(loss, variable)
    variable.assign_sub(tf.distribute.get_replica_context().all_reduce("SUM", gradient))
    return x

@tf.function
def step(x):
    return strategy.reduce("SUM", strategy.run(replica_step, (x,)), axis=None)

x = tf.constant((sdp.rank() + 1) / 8)  # the factor of the sum of gradients is 2 * 3 / 8
report("sums", [float(step(x)) for _ in range(2)])
(own,) = strategy.experimental_local_results(variable)
report("values", sorted(set(own.numpy().tolist())))
report("device", own.device[-5:])
report("gpus", [gpu.name[-5:] for gpu in tf.config.get_visible_devices("GPU")])
report("nccl", sdp.stats()["collectives"]["allreduce"]["nccl_bytes"])
"""


def test_a_strategy_gives_each_rank_its_gpu(gpus):
    gpus(2)
    job = run_job(2, STRATEGY, options=["--strategy"])
    assert job.exit_code == 0, str(job)
    assert [found["sums"] for found in job.reports] == [[0.375, 0.375]] * 2
    assert [found["values"] for found in job.reports] == [[1 / 16]] * 2
    assert [found["device"] for found in job.reports] == ["GPU:0"] * 2
    assert [found["gpus"] for found in job.reports] == [["GPU:0"], ["GPU:1"]]
    # The gradients, the sums, and what Strategy() checks.
    assert [found["nccl"] for found in job.reports] == [2 * 8000 + 3 * 4] * 2
    assert warnings(job) == []
