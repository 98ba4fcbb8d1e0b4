"""SMDDP_METRICS_PORT: each rank's figures for Prometheus, on the loopback interface."""

import re
import socket

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

JOB = """
import urllib.error, urllib.request
sdp.init()
sdp.allreduce([1.0, 2.0])
sdp.barrier()
here = f"http://127.0.0.1:{int(os.environ['SMDDP_METRICS_PORT']) + sdp.local_rank()}"
report("page", urllib.request.urlopen(f"{here}/metrics").read().decode())
try:
    urllib.request.urlopen(f"{here}/other")
except urllib.error.HTTPError as error:
    report("other", error.code)
with open("/proc/self/net/tcp") as table:
    lines = [line.split() for line in table if line.split()[3] == "0A"]
port = int(here.rpartition(":")[2])
report("listens", [line[1] for line in lines if line[1].endswith(f":{port:04X}")])

# As a page of another host that a browser shows.
request = urllib.request.Request(f"{here}/metrics", headers={"Host": f"example.com:{port}"})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    report("foreign", error.code)
request = urllib.request.Request(f"{here}/metrics", headers={"Host": f"localhost:{port}"})
urllib.request.urlopen(request).close()
# Each connection sends a byte every now and then, so that no single read takes long.
import socket, threading
def threads_and_files():
    return [threading.active_count(), len(os.listdir("/proc/self/fd"))]

before = threads_and_files()
slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
began = time.monotonic()
try:
    while time.monotonic() - began < 30:
        slow[0].send(b"G")
        time.sleep(0.2)
except OSError:
    pass
report("slow seconds", time.monotonic() - began)
report("more", [after - first for after, first in zip(threads_and_files(), before)])
for connection in slow:
    connection.close()
report("again", urllib.request.urlopen(f"{here}/metrics", timeout=60).status)
sdp.barrier()
sdp.shutdown()
try:
    urllib.request.urlopen(f"{here}/metrics")
except urllib.error.URLError as error:
    report("after", type(error.reason).__name__)
"""

# The kernel's tables have all sockets of the host; a process's own are those that its descriptors name.
WITHOUT = """
sdp.init()
sdp.allreduce([1.0, 2.0])
tables = [open(f"/proc/self/net/{name}").readlines()[1:] for name in ("tcp", "tcp6")]
listening = {line.split()[9] for table in tables for line in table if line.split()[3] == "0A"}
links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
own = {link.partition("socket:[")[2].rstrip("]") for link in links if "socket:[" in link}
report("listens", sorted(listening & own))
sdp.barrier()
"""


def free_ports():
    """The first of two neighbouring ports that nothing listens at; below those that the system gives away."""
    for port in range(20480, 32000, 2):
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two neighbouring ports are free")


def test_each_rank_has_a_page():
    job = run_job(2, JOB, options=["-x", f"SMDDP_METRICS_PORT={free_ports()}"])
    assert job.exit_code == 0, str(job)
    for rank, report in enumerate(job.reports):
        page = report["page"]
        assert f'smddp_calls_total{{rank="{rank}",collective="allreduce"}} 1\n' in page, page
        assert f'smddp_bytes_total{{rank="{rank}",collective="allreduce"}} 8\n' in page, page
        assert "# TYPE smddp_waiting_seconds_total counter\n" in page, page
        assert re.search(r'^smddp_arena_bytes\{rank="\d"\} \d+$', page, re.MULTILINE), page
        types = re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE)
        assert re.findall(r"^# HELP (\w+) \w.*\.$", page, re.MULTILINE) == types != [], page
        assert report["other"] == 404
        assert report["foreign"] == 403
        assert 3 < report["slow seconds"] < 20, str(job)
        assert report["more"][0] <= 2 and report["more"][1] <= 5 + 2, str(job)
        assert report["again"] == 200
        assert len(report["listens"]) == 1 and report["listens"][0].startswith("0100007F:"), str(job)
        assert report["after"] == "ConnectionRefusedError", str(job)


@pytest.mark.long
def test_no_rank_listens_without_the_variable():
    """At no address; the ranks of one host have no other sockets that listen for TCP."""
    job = run_job(2, WITHOUT)
    assert job.exit_code == 0, str(job)
    assert [report["listens"] for report in job.reports] == [[], []], str(job)


@pytest.mark.long
def test_a_port_in_use():
    port = free_ports()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        job = run_job(2, "sdp.init(); sdp.barrier()", options=["-x", f"SMDDP_METRICS_PORT={port}"])
    assert job.exit_code != 0, str(job)
    text = rf"SMDDP_METRICS_PORT={port}: rank 1 cannot listen at 127.0.0.1:{port + 1}: Address already in use"
    assert text in job.output, str(job)


@pytest.mark.parametrize(
    "value", ["http", *(pytest.param(each, marks=pytest.mark.long) for each in ("65536", "-1"))]
)
def test_no_port(value):
    job = run_job(1, "sdp.init()", options=["-x", f"SMDDP_METRICS_PORT={value}"])
    assert job.exit_code != 0, str(job)
    assert f"SMDDP_METRICS_PORT={value}: give a port from 1 to 65535" in job.output, str(job)
