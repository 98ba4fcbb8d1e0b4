"""Data and checkpoints in S3: a real client, tensorflow-io's, and a real server on loopback, moto's.

Both are in an environment of their own, on top of the one with TensorFlow; `make test-all` makes it.
"""

import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import pytest
import test_restarts
from harness import ROOT, run_job
from test_examples import check as check_example

pytestmark = [pytest.mark.long, pytest.mark.one_tensorflow, pytest.mark.keras(2)]

PREFIX = pathlib.Path(sys.prefix)
PYTHON = str(PREFIX.parent / PREFIX.name.replace("tf-", "s3-") / "bin" / "python")
START_SECONDS = 60

# A job that was killed while it saved its second checkpoint, at whatever place, has left these objects.
TORN = """
folder = sys.argv[1]
sdp.init()
count, own = tf.Variable(1), tf.Variable(10 + sdp.rank())
checkpoint = sdp.Checkpoint(folder, count=count, per_rank={"own": own}, max_to_keep=1)
checkpoint.save(1)
if sdp.rank() == 0:
    data = tf.io.gfile.GFile(f"{folder}/ckpt-1.data-00000-of-00001", "rb").read()
    half = data[: len(data) // 2]
    torn = ["ckpt-2.data-00000-of-00001", "ckpt-2.index", "ranks/2/rank-0-of-2.index"]
    torn.append("checkpoint.tmp" + "7" * 32)
    for name in torn:
        with tf.io.gfile.GFile(f"{folder}/{name}", "wb") as file:
            file.write(half)
sdp.barrier()
count.assign(0)
own.assign(0)
again = sdp.Checkpoint(folder, count=count, per_rank={"own": own}, max_to_keep=1)
report("restored", [again.restore(), int(count), int(own)])
count.assign(2)
again.save(2)
report("latest", [again.restore(), int(count)])
names = [os.path.join(path, name) for path, _, names in tf.io.gfile.walk(folder) for name in names]
report("names", sorted(name.split("torn/")[1] for name in names))
sdp.barrier()
"""

NO_BUCKET = """
sdp.init()
try:
    sdp.Checkpoint("s3://no-bucket/saved", count=tf.Variable(1)).restore()
except RuntimeError as error:
    report("error", str(error))
"""


def wait_for_endpoint(server, log):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"moto's server did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """The address of a server with an empty bucket."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with open(log, "wb") as output:
        command = [PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        address = wait_for_endpoint(server, log)
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT"), timeout=30).close()
        yield address
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def bucket(endpoint, monkeypatch):
    """The path of the bucket, for processes that are started now."""
    monkeypatch.setenv("S3_ENDPOINT", endpoint)
    monkeypatch.setenv("S3_USE_HTTPS", "0")
    monkeypatch.setenv("S3_VERIFY_SSL", "0")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return "s3://bucket"


def test_the_example_trains_and_goes_on(bucket):
    words = [str(ROOT / "examples" / "tfrecords.py"), "--data", f"{bucket}/digits"]
    words += ["--checkpoint", f"{bucket}/trained", "--epochs"]
    job = run_job(2, *words, "4", python=PYTHON)
    assert job.exit_code == 0 and "begins after epoch 0 of 4" in job.output, str(job)
    job = run_job(2, *words, "10", python=PYTHON)
    assert "begins after epoch 4 of 10" in job.output, str(job)
    assert "16 in s3://bucket/digits" in job.output, str(job)
    check_example(job, "tfrecords")


def test_a_checkpoint_that_was_not_written_to_its_end_is_not_read(bucket):
    job = run_job(2, TORN, f"{bucket}/torn", python=PYTHON)
    assert job.exit_code == 0, str(job)
    assert [report["restored"] for report in job.reports] == [[1, 1, 10], [1, 1, 11]], str(job)
    assert [report["latest"] for report in job.reports] == [[2, 2], [2, 2]], str(job)
    parts = [f"ranks/2/rank-{rank}-of-2" for rank in range(2)]
    whole = [f"{name}.{kind}" for name in ("ckpt-2", *parts) for kind in ("data-00000-of-00001", "index")]
    assert job.reports[0]["names"] == ["checkpoint", *whole], str(job)


def test_kills_cost_no_weight(bucket):
    test_restarts.check(f"{bucket}/killed", 3, python=PYTHON)


def test_a_store_without_answers_is_no_empty_one(bucket):
    """For tensorflow-io, there are no files in it; the training must not begin again."""
    job = run_job(2, NO_BUCKET, python=PYTHON)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert "rank 0 could not find the latest checkpoint in s3://no-bucket/saved: " in report["error"], (
            str(job)
        )
        assert "NoSuchBucket" in report["error"], str(job)
