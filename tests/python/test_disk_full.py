"""The disk is full while a checkpoint is written: an error on all ranks, and the checkpoint before it stays.

That a rank which is killed while a checkpoint is written costs no weight, test_restarts.py tests.
"""

import shutil
import subprocess

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

# Each checkpoint has 4 MB for rank 0, and 2 MB for each rank.
SCRIPT = """
folder, steps = sys.argv[1], int(sys.argv[2])
sdp.init()
shared, own = tf.Variable(tf.zeros([1_000_000])), tf.Variable(tf.zeros([500_000]))
checkpoint = sdp.Checkpoint(folder, shared=shared, per_rank={"own": own}, max_to_keep=100)
first = checkpoint.restore() or 0
report("first", [first, float(shared[-1]), float(own[-1]) - sdp.rank()])
try:
    for step in range(first + 1, first + steps + 1):
        shared.assign(tf.fill([1_000_000], float(step)))
        own.assign(tf.fill([500_000], float(step) + sdp.rank()))
        checkpoint.save(step)
        report("saved", step)
except RuntimeError as error:
    report("error", str(error))
"""


def may_mount(folder):
    return (
        shutil.which("unshare")
        and not subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True
        ).returncode
    )


@pytest.fixture
def small_disk(tmp_path):
    """A folder with room for two checkpoints and a part of the third one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not may_mount(disk):
        pytest.skip("this user may not mount a file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20M", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.long
def test_a_disk_that_is_full(small_disk):
    folder = small_disk / "checkpoints"
    job = run_job(2, SCRIPT, str(folder), "5")
    assert job.exit_code == 0, str(job)
    assert [report["saved"] for report in job.reports] == [2, 2], str(job)
    for report in job.reports:
        assert report["error"] == job.reports[0]["error"], str(job)
        for text in ("Checkpoint: rank ", " could not write ", "No space left on device"):
            assert text in report["error"], str(job)

    # With room again, the training goes on at the checkpoint that was whole.
    subprocess.run(["mount", "-o", "remount,size=60M", str(small_disk)], check=True)
    job = run_job(2, SCRIPT, str(folder), "1")
    for report in job.reports:
        assert report["first"] == [2, 2.0, 2.0] and report["saved"] == 3, str(job)
    assert "error" not in job.reports[0], str(job)
    assert not list(folder.rglob("*tempstate*")), str(job)
