"""SMDDP_TIMELINE and SMDDP_SUMMARY, and what smddprun makes of them."""

import json

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

JOB = """
import numpy as np
sdp.init()
for step in range(3):
    if sdp.rank() == 1:
        time.sleep(0.3)
    sdp.grouped_allreduce([np.ones(1000, np.float32), np.ones(500, np.float32)])
"""


def test_a_summary_and_a_timeline(tmp_path):
    file = tmp_path / "all.json"
    job = run_job(2, JOB, options=["--summary", "--timeline", str(file)])
    assert job.exit_code == 0, str(job)
    text = str(job)
    assert "rank   seconds  steps/s" in text and "18.0 kB" in text, text
    assert "rank 1 is the last to arrive, in 3 of 3 steps" in text, text
    events = json.loads(file.read_text())
    calls = [(event["pid"], event["name"]) for event in events if event["ph"] == "b" and "args" in event]
    assert len(calls) == 12 and {pid for pid, _ in calls} == {0, 1}, calls
    for rank in range(2):
        steps = [event for event in events if event["ph"] == "X" and event["pid"] == rank]
        assert [event["name"] for event in steps] == ["step 1", "step 2", "step 3"], events
        assert all(250_000 <= event["dur"] < 30e6 for event in steps[1:]), steps  # microseconds
        ends = [event["ts"] + event["dur"] for event in steps]
        assert [event["ts"] for event in steps[1:]] == pytest.approx(ends[:-1], abs=0.01, rel=0), steps
    assert [path.name for path in tmp_path.iterdir()] == ["all.json"]


def test_files_that_cannot_be_written_are_a_warning(tmp_path):
    nowhere = str(tmp_path / "none" / "all.json")
    job = run_job(
        1,
        f"os.environ.update(SMDDP_TIMELINE={nowhere!r}, SMDDP_SUMMARY={nowhere!r})\nsdp.init()",
        launcher=False,
    )
    assert job.exit_code == 0, str(job)
    assert "There is no timeline." in str(job) and "There are no figures of this rank." in str(job), str(job)
