"""Random schedules of mixed collectives over 2 to 5 ranks and two process sets, against NumPy."""

import pathlib

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

SCRIPT = pathlib.Path(__file__).with_name("schedules.py")


@pytest.mark.parametrize(
    "size, schedules",
    [(3, 50), *(pytest.param(size, 500, marks=pytest.mark.long) for size in (2, 3, 4, 5))],
)
def test_schedules(size, schedules):
    """Every result is right, and nothing grows. `schedules.py SEED 1` runs the seed of a failure again."""
    job = run_job(size, str(SCRIPT), str(size * 500), str(schedules), seconds=240)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report["schedules"] == schedules, job
        (fds, threads, memory), (fds_after, threads_after, memory_after) = report["before"], report["after"]
        assert fds_after <= fds, job
        assert threads_after <= threads, job
        # TensorFlow keeps some of what each traced function costs.
        assert memory_after - memory < 64 << 20, job
