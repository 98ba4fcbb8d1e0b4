"""Several sources that write to one sink, whose writer only remembers the bytes; and the real writer."""

import fcntl
import os
import threading

import pytest
from launcher_harness import wait_until

from smddprun.outputs import Style, style
from smddprun.sinks import PlainSink, TerminalSink
from smddprun.writer import Writer


class Memory:
    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += data


def make(kind):
    memory = Memory()
    return kind(memory), memory


def test_blocks_follow_each_other():
    sink, memory = make(PlainSink)
    sink.block(0, b"[0] a\n")
    sink.block(1, b"[1] b\n[1] c\n")
    sink.message("smddprun: d")
    assert memory.data == b"[0] a\n[1] b\n[1] c\nsmddprun: d\n"


def test_an_update_stays_one_only_while_it_is_followed_by_another():
    sink, memory = make(PlainSink)
    sink.block(0, b"10%\r")
    sink.block(0, b"20%\r")
    sink.block(1, b"bar\r")
    sink.block(0, b"30%\r")
    sink.block(1, b"line\n")
    sink.block(0, b"100%\n")
    assert memory.data == b"10%\r20%\rbar\r30%\r\nline\n100%\n"


def test_a_message_begins_a_line_of_its_own():
    sink, memory = make(PlainSink)
    sink.raw(0, b"no end")
    sink.message("word")
    assert memory.data == b"no end\nword\n"


def test_terminal_draws_the_bar_again_below_other_lines():
    sink, memory = make(TerminalSink)
    sink.raw(0, b"start\n\r 10%")
    sink.block(1, b"[1] hello\n")
    sink.raw(0, b"\r 20%")
    sink.block(1, b"[1] again\n")
    sink.raw(0, b"\n")
    sink.block(1, b"[1] end\n")
    assert memory.data == (b"start\n\r 10%\r\x1b[K[1] hello\n 10%\r 20%\r\x1b[K[1] again\n 20%\n[1] end\n")


@pytest.mark.parametrize("bar", [b"\r50%", b"50%\r", b"\r50%\r"])
def test_terminal_keeps_a_bar_however_it_is_written(bar):
    sink, memory = make(TerminalSink)
    sink.raw(0, bar)
    sink.block(1, b"x\n")
    assert memory.data == bar + b"\r\x1b[Kx\n" + bar.lstrip(b"\r")


def test_terminal_clears_the_rest_of_an_update():
    sink, memory = make(TerminalSink)
    sink.block(1, b"[1] a long bar\r")
    sink.block(2, b"[2] b\n")
    assert memory.data == b"[1] a long bar\r\x1b[K[2] b\n"


def test_terminal_does_not_draw_endless_lines_again():
    sink, memory = make(TerminalSink)
    sink.raw(0, b"x" * 100000)
    sink.block(1, b"y\n")
    assert memory.data == b"x" * 100000 + b"\ny\n"


@pytest.mark.parametrize(
    "rank,ranks,tags,terminal,expected",
    [
        (0, 1, None, False, Style(None, False)),
        (0, 1, True, False, Style(b"[0] ", False)),
        (0, 2, None, False, Style(b"[0] ", False)),
        (11, 12, None, False, Style(b"[11] ", False)),
        (1, 2, False, False, Style(b"", False)),
        (0, 2, None, True, Style(None, True)),
        (0, 2, False, True, Style(None, True)),
        (0, 2, True, True, Style(b"[0] ", False)),
        (1, 2, None, True, Style(b"[1] ", False)),
        (0, 1, None, True, Style(None, True)),
    ],
)
def test_style(rank, ranks, tags, terminal, expected):
    assert style(rank, ranks, tags, terminal) == expected


def test_writer_never_blocks_the_producer_and_reports_progress():
    read_end, write_end = os.pipe()
    woken = threading.Event()
    writer = Writer(write_end, woken.set)
    writer.start()
    data = os.urandom(1 << 20)
    writer.paused = True
    for _ in range(8):
        writer.write(data)
    assert writer.backlog_bytes > writer.HIGH_BYTES
    got = b""
    while len(got) < 8 << 20:
        got += os.read(read_end, 1 << 20)
    writer.finish()
    assert got == data * 8 and writer.backlog_bytes == 0 and woken.is_set()
    os.close(read_end)
    os.close(write_end)


def test_writer_reports_a_closed_output():
    read_end, write_end = os.pipe()
    woken = threading.Event()
    writer = Writer(write_end, woken.set)
    writer.start()
    os.close(read_end)
    writer.write(b"x")
    assert woken.wait(10) and isinstance(writer.error, BrokenPipeError)
    writer.write(b"y")
    assert writer.backlog_bytes == 0
    writer.finish()
    os.close(write_end)


def test_writer_copes_with_an_output_that_others_made_non_blocking():
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    capacity = fcntl.fcntl(write_end, 1032)  # F_GETPIPE_SZ
    writer = Writer(write_end, lambda: None)
    writer.start()
    writer.write(b"x" * (3 * capacity))
    got = b""
    wait_until(lambda: writer.backlog_bytes, "a backlog")
    while len(got) < 3 * capacity:
        got += os.read(read_end, capacity)
    writer.finish()
    assert got == b"x" * (3 * capacity) and writer.error is None
    os.close(read_end)
    os.close(write_end)
