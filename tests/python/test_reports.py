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
    sdp.allreduce(np.ones(1000, np.float32))
"""


def test_a_summary_and_a_timeline(tmp_path):
    file = tmp_path / "all.json"
    job = run_job(2, JOB, options=["--summary", "--timeline", str(file)])
    assert job.exit_code == 0, str(job)
    text = str(job)
    assert "rank   seconds  steps/s" in text and "12.0 kB" in text, text
    assert "rank 1 is the last to arrive" in text, text
    events = json.loads(file.read_text())
    calls = [(event["pid"], event["name"]) for event in events if event["ph"] == "b" and "args" in event]
    assert sorted(calls) == [(0, "SmddpAllreduce")] * 3 + [(1, "SmddpAllreduce")] * 3, calls
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
