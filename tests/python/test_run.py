"""sdp.run: ranks that a running Python process starts, as a notebook does."""

import os
import signal
import time

import pytest
from harness import RunningJob, run_job

WORKS = """
import io, contextlib
import numpy as np
scale = 10

def place(first, second=0):
    import tf_smddp as sdp
    sdp.init()
    total = sdp.allreduce(np.float32(first * scale + second), op=sdp.ReduceOp.SUM)
    print(f"hello of rank {sdp.rank()} é", flush=True)
    return sdp.rank(), sdp.size(), float(total), total

shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    report("first", [result[:3] for result in sdp.run(place, args=(2,), kwargs={"second": 3}, np=2)])
report("shown", shown.getvalue())
"""
WORKS_AGAIN = """
report("tensor", [float(result[3]) for result in sdp.run(place, args=(1,), np=1)])
report("lambda", sdp.run(lambda: os.environ["SMDDP_RANK"], np=2))
sdp.init()  # as rank 0 of 1, this process still may
report("third", [result[:3] for result in sdp.run(place, (4,), np=2)])
"""


@pytest.mark.one_tensorflow
def test_results_and_output():
    job = run_job(1, WORKS, launcher=False)
    assert job.exit_code == 0, str(job)
    report = job.reports[0]
    assert report["first"] == [[0, 2, 46.0], [1, 2, 46.0]], str(job)
    assert all(f"[{rank}] hello of rank {rank} é\n" in report["shown"] for rank in range(2)), str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_several_runs():
    job = run_job(1, WORKS + WORKS_AGAIN, launcher=False)
    assert job.exit_code == 0, str(job)
    report = job.reports[0]
    assert report["tensor"] == [10.0], str(job)
    assert report["lambda"] == ["0", "1"], str(job)
    assert report["third"] == [[0, 2, 80.0], [1, 2, 80.0]], str(job)


FAILS = """
def error_of(*arguments, **others):
    try:
        sdp.run(*arguments, **others)
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"

def bad_rank():
    import tf_smddp as sdp
    sdp.init()
    if sdp.rank() == 1:
        raise KeyError("no such column")
    sdp.barrier()

def ends():
    os._exit(0 if os.environ["SMDDP_RANK"] == "0" else 7)

def unsendable():
    import threading
    return threading.Lock()

report("raises", error_of(bad_rank))
report("ends", error_of(ends))
report("unsendable", error_of(unsendable, np=1))
import threading
report("argument", error_of(print, args=(threading.Lock(),)))
report("function", error_of(bad_rank.__name__))
report("np", [error_of(bad_rank, np=np) for np in (0, 2.0, True)])
report("works again", sdp.run(len, ("four",), np=1))
"""


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_errors():
    job = run_job(1, FAILS, launcher=False)
    assert job.exit_code == 0, str(job)
    report = job.reports[0]
    assert report["raises"].startswith(
        "RuntimeError: tf_smddp.run(): rank 1 has raised KeyError: 'no such"
    ), str(job)
    assert "in bad_rank" in report["raises"], str(job)
    assert "exit code 7" in report["ends"] and "rank 0, 1" in report["ends"], str(job)
    assert "rank 0 has raised TypeError: the function's result of type lock" in report["unsendable"], str(job)
    assert report["argument"].startswith("TypeError: tf_smddp.run() cannot send print or its arguments"), str(
        job
    )
    assert "needs a function, but got 'bad_rank'" in report["function"], str(job)
    assert [text.partition(" needs ")[0] for text in report["np"]] == [
        "ValueError: tf_smddp.run()",
        "TypeError: tf_smddp.run()",
        "TypeError: tf_smddp.run()",
    ], str(job)
    assert report["works again"] == [4], str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_inside_a_rank():
    job = run_job(
        2,
        """
try:
    sdp.run(print)
except RuntimeError as error:
    report("error", str(error))
""",
    )
    assert job.exit_code == 0, str(job)
    for rank, report in enumerate(job.reports):
        assert report["error"].startswith(
            "tf_smddp.run() was called inside a rank of a job (OMPI_COMM_WORLD_RANK="
        ), str(job)
        assert f"={rank})" in report["error"], str(job)


HANGS = """
def hang():
    import time
    with open(f"{os.environ['TF_SMDDP_TEST_REPORTS']}/started.{os.environ['SMDDP_RANK']}", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)

report("pid", os.getpid())
try:
    sdp.run(hang, np=2)
except KeyboardInterrupt:
    report("interrupted", True)
"""


@pytest.mark.long
@pytest.mark.one_tensorflow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left(number):
    """After an interrupt, which goes to the notebook's process alone; and after its sudden end."""
    with RunningJob(1, HANGS, launcher=False) as running:
        (pid,) = running.wait_for("pid")
        folder = running._reports
        deadline = time.monotonic() + 60.0
        while len(list(folder.glob("started.*"))) < 2:
            assert time.monotonic() < deadline, "the ranks do not start"
            time.sleep(0.05)
        ranks = [int(path.read_text() or 0) for path in folder.glob("started.*")]
        os.kill(pid, number)
        if number == signal.SIGINT:
            job = running.finish(60.0)
            assert job.exit_code == 0 and job.reports[0]["interrupted"], str(job)
            assert not job.leftovers, str(job)
        deadline = time.monotonic() + 60.0
        while any(os.path.exists(f"/proc/{rank}") for rank in ranks):
            assert time.monotonic() < deadline, f"of the ranks {ranks}, some are left"
            time.sleep(0.05)
