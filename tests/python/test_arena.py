"""Tensors in shared memory: what processes may do with them, and what happens when there is no room."""

import pytest
from harness import run_job

STEP = """
import numpy as np

def allreduce_in_function(x):
    return tf.function(lambda x: sdp.allreduce(x * 2.0, 0, 1, op=sdp.ReduceOp.SUM))(x)

def staged():
    return sdp.stats()["collectives"]["allreduce"]["staged_bytes"]
"""


def test_tensors_outlive_shutdown_and_meet_again():
    job = run_job(
        2,
        STEP
        + """
sdp.init()
x = tf.random.stateless_normal([500, 1000], [1, 1])
first = allreduce_in_function(x)
alias = np.asarray(first)
expected = 4.0 * x.numpy()
sdp.shutdown()
report("after shutdown", bool(np.array_equal(first.numpy(), expected)))
between = x + 1.0
report("between jobs", bool(np.array_equal(between.numpy(), x.numpy() + 1.0)))
del first
job_id = os.path.basename(os.environ.pop("SMDDP_RENDEZVOUS"))  # that place was for one job
for number in range(3):
    os.environ["SMDDP_JOB_ID"] = f"{job_id}-{number}"
    sdp.init()
    again = allreduce_in_function(x)
    report("again", bool(np.array_equal(again.numpy(), expected)))
    sdp.allreduce(x, 0, 1)  # made in an earlier job
    report("staged", staged())
    sdp.shutdown()
del x, again
report("alias", bool(np.array_equal(alias, expected)))
with open("/proc/self/maps") as maps:
    report("arenas mapped", sum("memfd:smddp-arena" in line for line in maps))
""",
    )
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        for key in ("after shutdown", "between jobs", "again", "alias"):
            assert report[key] is True, (key, str(job))
        assert report["staged"] == 0, str(job)
        assert report["arenas mapped"] == 1, str(job)  # its own; the others' went with the last job


@pytest.mark.one_tensorflow
def test_children_of_every_kind():
    """A forked child's writes reach neither its parent nor the other ranks; programs start as ever."""
    job = run_job(
        2,
        STEP
        + """
import ctypes, multiprocessing, subprocess

def child(queue, array):
    array[:] = 7.0
    queue.put(float(array.sum()))

sdp.init()
x = tf.ones([100000])
y = allreduce_in_function(x)
array = np.asarray(y)  # the tensor's own memory; read-only
writeable = np.frombuffer((ctypes.c_char * array.nbytes).from_address(array.ctypes.data), np.float32)
pid = os.fork()
if pid == 0:
    ok = bool((writeable == 4.0).all())
    writeable[:] = 9.0
    os._exit(0 if ok and bool((writeable == 9.0).all()) else 1)
report("fork", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
queue = multiprocessing.get_context("fork").SimpleQueue()
process = multiprocessing.get_context("fork").Process(target=child, args=(queue, writeable))
process.start()
report("multiprocessing", queue.get())
process.join()
report("subprocess", subprocess.check_output([sys.executable, "-c", "print(6 * 7)"], text=True))
report("system", os.system("true"))
report("here", bool((writeable == 4.0).all()))
for _ in range(20):
    y = allreduce_in_function(x)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
report("sum", float(y[5]))
report("staged", staged())
""",
    )
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report["fork"] == 0, str(job)
        assert report["multiprocessing"] == 700000.0, str(job)
        assert report["subprocess"] == "42\n", str(job)
        assert report["system"] == 0, str(job)
        assert report["here"] is True, str(job)
        assert (report["sum"], report["staged"]) == (4.0, 0), str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_a_child_that_outlives_its_rank_keeps_no_other_rank_waiting():
    job = run_job(
        2,
        STEP
        + """
sdp.init()
y = allreduce_in_function(tf.ones([100000]))
pid = os.fork()
if pid == 0:
    time.sleep(1.5)
    os._exit(0)
report("sum", float(y[0]))
""",
    )
    assert job.exit_code == 0, str(job)
    assert [report["sum"] for report in job.reports] == [4.0, 4.0], str(job)


TOO_LATE = """
import json, os, sys
import tensorflow as tf

{first}
import tf_smddp as sdp

def report(key, value):
    with open(f"{{os.environ['TF_SMDDP_TEST_REPORTS']}}/{{os.environ['SMDDP_RANK']}}", "a") as file:
        file.write(json.dumps([key, value]) + "\\n")

sdp.init()
y = tf.function(lambda x: sdp.allreduce(x * 2.0, 0, 1, op=sdp.ReduceOp.SUM))(tf.ones([100000]))
report("sum", float(y[0]))
report("staged", sdp.stats()["collectives"]["allreduce"]["staged_bytes"])
"""


@pytest.mark.parametrize(
    "first, late",
    [
        ("x = tf.constant(1.0)", True),
        pytest.param("tf.compat.v1.Session().close()", True, marks=pytest.mark.long),
        pytest.param("tf.data.Dataset.range(3)", True, marks=pytest.mark.long),
        pytest.param(
            "tf.config.list_physical_devices(); tf.random.set_seed(1)",
            False,
            marks=pytest.mark.one_tensorflow,
        ),
        pytest.param(
            "f = tf.function(lambda x: x); tf.keras.mixed_precision.set_global_policy('float32')",
            False,
            marks=pytest.mark.long,
        ),
    ],
)
def test_tensors_made_before_the_import(tmp_path, first, late):
    script = tmp_path / "script.py"
    script.write_text(TOO_LATE.format(first=first))
    job = run_job(2, str(script))
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report == {"sum": 4.0, "staged": 400000 if late else 0}, str(job)
    warning = "tensors were made before tf_smddp was imported"
    assert job.output.count(warning) == (1 if late else 0), str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_with_the_pool_of_tensorflow(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TOO_LATE.format(first="os.environ['TF_CPU_ALLOCATOR_USE_BFC'] = '1'"))
    job = run_job(2, str(script))
    assert job.exit_code == 0, str(job)
    assert [report["sum"] for report in job.reports] == [4.0, 4.0], str(job)


@pytest.mark.one_tensorflow
def test_an_arena_that_is_full():
    """Tensors beyond it lie in private memory, and are staged; the figures say so."""
    job = run_job(
        2,
        STEP
        + """
os.environ["SMDDP_ARENA_BYTES"] = str(4 << 20)
sdp.init()
kept = [tf.fill([300000], float(i + 1)) for i in range(10)]
y = allreduce_in_function(kept[3])
report("sum", float(y[0]))
figures = sdp.stats()
report("staged", staged())
report("refused", figures["arena_refused_calls"])
report("peak", figures["arena_peak_bytes"])
report("kept", [float(x[-1]) for x in kept])
""",
    )
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report["sum"] == 16.0, str(job)
        assert report["staged"] == 1_200_000, str(job)
        assert report["refused"] >= 7, str(job)
        assert 3_600_000 <= report["peak"] <= 4 << 20, str(job)
        assert report["kept"] == [float(i + 1) for i in range(10)], str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
@pytest.mark.parametrize("steps", [600, 10000])
def test_changing_sizes_do_not_make_it_grow(steps):
    job = run_job(
        2,
        STEP
        + """
sdp.init()

def arena_in_memory():
    total = own = 0
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if "-" in line.split(" ")[0]:
                own = "memfd:smddp-arena" in line
            elif own and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total

@tf.function(input_signature=[tf.TensorSpec([None, None])])
def step(x):
    hidden = tf.nn.relu(x @ tf.transpose(x))
    gradients = [sdp.allreduce(tf.reduce_sum(hidden) * x, 0, 2), sdp.allreduce(hidden, 1, 2)]
    return [tf.reduce_sum(g) for g in gradients]

random = np.random.RandomState(1)  # the same on all ranks
shapes = random.randint(1, 500, [100, 2])
for index in range(int(sys.argv[1])):
    step(tf.ones(shapes[random.randint(100)]))
report("in memory", arena_in_memory())
report("staged", staged())
report("used", sdp.stats()["arena_used_bytes"])
report("peak", sdp.stats()["arena_peak_bytes"])
""",
        str(steps),
        seconds=240,
    )
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        # Both ranks' arenas, in KiB: what was alive at once at some time, and no more for all these steps.
        assert report["in memory"] * 1024 <= 1.1 * sum(each["peak"] for each in job.reports), str(job)
        assert report["peak"] < 8 << 20, str(job)
        assert report["used"] < 1 << 20, str(job)
        assert report["staged"] == 0, str(job)
