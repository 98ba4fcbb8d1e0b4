"""The reader of the launcher's output: it may be slow, stop reading, or close its end."""

import os
import re
import signal
import time

import pytest
from launcher_harness import cpu_ticks, proc, unread, wait_until

from smddprun.writer import Writer


def test_a_reader_that_leaves_ends_the_ranks_like_any_writer(launcher):
    running = launcher.start("-np", 2, "yes")
    assert b"y\n" in os.read(running.process.stdout.fileno(), 1000)
    running.process.stdout.close()
    running.process.stdout = None
    result = running.finish()
    assert result.code == 128 + signal.SIGPIPE and "killed by SIGPIPE" in result.messages


@pytest.mark.parametrize("option", ["--help", "--check"])
def test_a_reader_that_leaves_before_a_text_comes(launcher, option):
    # Without a PATH there is no launcher, and the check reports this soon.
    running = launcher.start(option, "-H", "other", env={"PATH": "/nowhere"})
    running.process.stdout.close()
    running.process.stdout = None
    result = running.finish()
    assert (result.code, result.messages) == (128 + signal.SIGPIPE, "")


def test_a_reader_that_leaves_does_not_end_ranks_that_log(launcher):
    script = "for i in {1..2000}; do echo $i; done"
    running = launcher.start("-np", 2, "--output-dir", "logs", "bash", "-c", script)
    running.process.stdout.close()
    running.process.stdout = None
    assert running.finish().code == 0
    assert (launcher.work / "logs" / "rank-1.stdout").read_text().split() == [str(i) for i in range(1, 2001)]


def wait_until_it_waits_for_its_reader(running):
    """Waits until the pipe has much output and the launcher uses no CPU time."""

    def still():
        ticks = cpu_ticks(running.pid)
        time.sleep(0.2)
        return unread(running.process.stdout.fileno()) > 32 << 10 and cpu_ticks(running.pid) == ticks

    wait_until(still, "it waits for its reader")


def test_a_reader_that_stops_does_not_stop_the_launcher(launcher):
    running = launcher.start("-np", 2, "yes")
    wait_until_it_waits_for_its_reader(running)
    running.signal(signal.SIGINT)
    begin = time.monotonic()
    wait_until(
        lambda: launcher.leftovers() == [running.pid], "all but the launcher, which has output left, end"
    )
    assert time.monotonic() - begin < 5
    result = running.finish()
    assert result.code == 130 and result.stdout.endswith(b"\n")


def test_memory_is_bounded_when_the_reader_is_slow(launcher):
    running = launcher.start("-np", 2, "yes")
    wait_until_it_waits_for_its_reader(running)
    assert int(re.search(rb"VmRSS:\s+(\d+) kB", proc(running.pid, "status"))[1]) < 100_000
    before = cpu_ticks(running.pid)
    time.sleep(0.5)
    assert cpu_ticks(running.pid) - before <= 5  # it waits, and doesn't spin
    running.signal(signal.SIGTERM)
    running.finish()


def test_heavy_output(launcher):
    launcher.script("write.py", "import os\nfor _ in range(800): os.write(1, (b'x' * 99 + b'\\n') * 655)")

    def bytes_per_second():
        begin = time.monotonic()
        result = launcher.run("-np", 2, "write.py")
        assert result.code == 0 and len(result.stdout) == 2 * 800 * 655 * 104
        return len(result.stdout) / (time.monotonic() - begin)

    # The launcher is several times as fast. On a busy machine the best of three runs counts.
    assert any(bytes_per_second() > 20e6 for _ in range(3))


def start_with_a_helper(launcher):
    """Starts a rank that ends when the launcher has stopped to read its helper's output."""
    script = "seq 1500000 & echo $! > helper; until [ -e full ]; do sleep 0.01; done; echo > ended"
    running = launcher.start("-np", 1, "bash", "-c", script)
    (helper,) = launcher.wait_for_files("helper")
    wait_until(lambda: bytes_written(int(helper)) > Writer.HIGH_BYTES, "the helper has written much")
    wait_until_it_waits_for_its_reader(running)
    (launcher.work / "full").touch()
    launcher.wait_for_files("ended")
    return running


def bytes_written(pid):
    return int(re.search(rb"wchar: (\d+)", proc(pid, "io"))[1])


def test_helpers_may_wait_for_a_slow_reader(launcher):
    running = start_with_a_helper(launcher)
    time.sleep(2)  # longer than helpers may otherwise take
    result = running.finish()
    assert result.code == 0 and result.stderr == b""
    assert result.lines == [str(number) for number in range(1, 1500001)]


def test_helpers_do_not_wait_for_a_reader_when_the_job_is_told_to_stop(launcher):
    running = start_with_a_helper(launcher)
    running.signal(signal.SIGTERM)
    wait_until(lambda: launcher.leftovers() == [running.pid], "the helper is ended")
    assert len(running.finish().lines) < 1500000
