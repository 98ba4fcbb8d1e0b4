"""The layer's first init() in a job: what HOROVOD_… variables and process sets do there.

spmd/test_horovod.py has each of the variables.
"""

import json

import pytest
from harness import run_job

pytestmark = [pytest.mark.long, pytest.mark.one_tensorflow]

JOB = """
import tf_smddp.horovod.tensorflow as hvd
os.environ["HOROVOD_TIMELINE"] = sys.argv[1]
os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "1"
os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "5"
os.environ["HOROVOD_CYCLE_TIME"] = "2"
hvd.init()
hvd.allreduce(tf.ones([3]), name="loss")
if hvd.rank() == 0:
    time.sleep(4)
hvd.barrier()
report("done", True)
"""


def test_a_timeline_a_warning_and_a_stall(tmp_path):
    file = tmp_path / "timeline.json"
    job = run_job(2, JOB, str(file))
    assert job.exit_code == 0 and job.reports == [{"done": True}] * 2, str(job)
    assert job.output.count("without effect here: HOROVOD_CYCLE_TIME. ") == 1, str(job)
    assert "has waited" in job.output, str(job)
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.json"], str(job)
    assert any("allreduce" in str(event) for event in json.loads(file.read_text())), str(job)


@pytest.mark.parametrize("sets", ["'dynamic'", "[hvd.ProcessSet([1])]"])
def test_process_sets_of_the_first_init(sets):
    job = run_job(
        2,
        f"""
import tf_smddp.horovod.tensorflow as hvd
sets = {sets}
hvd.init(process_sets=sets)
last = hvd.add_process_set([1]) if isinstance(sets, str) else sets[0]
report("number", last.process_set_id)
if last.included():
    report("sum", float(hvd.allreduce(3.0, op=hvd.Sum, process_set=last)))
hvd.barrier()
""",
    )
    assert job.exit_code == 0, str(job)
    assert job.reports == [{"number": 1}, {"number": 1, "sum": 3.0}], str(job)
