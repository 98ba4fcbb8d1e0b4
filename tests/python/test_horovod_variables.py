"""HOROVOD_… variables: what they do when the layer's init() finds them. spmd/test_horovod.py has each."""

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
