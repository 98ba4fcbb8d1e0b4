"""Lines, tags and the last lines of a rank."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smddprun import lines
from smddprun.lines import LineSplitter, Tail, begins_with_update, tag

# Short texts of the special bytes, so that Hypothesis finds every combination.
texts = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b"bc", b"\x00\xff", b" "])).map(b"".join)


def units(text: bytes) -> list[bytes]:
    """Returns what the splitter must forward, computed from the whole text."""
    found = re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", text)
    return [unit for unit in found if unit != b"\r"]


def cut(text: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[a:b] for a, b in zip(bounds, bounds[1:]) if a < b]


def feed_all(chunks, prefix=b"") -> bytes:
    """Returns the bytes that a sink with this source alone would write."""
    splitter, written = LineSplitter(), b""
    for chunk in chunks:
        block = splitter.feed(chunk)
        assert block == b"" or block.endswith((b"\n", b"\r"))
        written += tag(block, prefix) if block else b""
    rest = splitter.flush()
    assert splitter.flush() == b""
    return written + (prefix + rest if rest else b"")


@given(texts, st.lists(st.integers(0, 200)))
def test_cuts_make_no_difference(text, places):
    assert feed_all(cut(text, places)) == b"".join(units(text))


@given(texts, st.lists(st.integers(0, 200)))
def test_each_unit_has_one_tag(text, places):
    assert feed_all(cut(text, places), b"[1] ") == b"".join(b"[1] " + unit for unit in units(text))


@given(texts.filter(lambda text: b"\r" not in text))
def test_byte_by_byte_without_updates_nothing_is_lost(text):
    assert feed_all([text[i : i + 1] for i in range(len(text))]) == text


@given(st.binary(max_size=200).filter(lambda text: b"\r" not in text))
def test_binary_is_unchanged(data):
    assert feed_all(cut(data, [3, 17, 50])) == data


def test_a_line_is_passed_on_when_its_end_comes_and_not_before():
    splitter = LineSplitter()
    assert splitter.feed(b"one") == b""
    assert splitter.feed(b" two\nthr") == b"one two\n"
    assert splitter.feed(b"ee\n") == b"three\n"
    assert splitter.flush() == b""


def test_an_update_is_passed_on_with_the_next_one():
    splitter = LineSplitter()
    assert splitter.feed(b"10%\r") == b""
    assert splitter.feed(b"20%\r") == b"10%\r"
    assert splitter.feed(b"\n") == b"20%\r\n"
    assert splitter.feed(b"30%\r") == b""
    assert splitter.flush() == b"30%\r"


def test_a_bar_as_tqdm_writes_it_shows_one_update_late():
    splitter = LineSplitter()
    assert splitter.feed(b"\r") == b""
    assert splitter.feed(b"\r10%") == b""
    assert splitter.feed(b"\r20%") == b"10%\r"
    assert splitter.feed(b"\n") == b"20%\n"


@pytest.mark.parametrize("chunk", [1, 1000, lines.MAX_LINE_BYTES // 2, 3 * lines.MAX_LINE_BYTES])
def test_a_line_without_end_is_cut_and_memory_stays_bounded(chunk):
    size = 3 * lines.MAX_LINE_BYTES if chunk > 1 else lines.MAX_LINE_BYTES + 5
    splitter, passed, longest = LineSplitter(), [], 0
    for begin in range(0, size, chunk):
        block = splitter.feed(b"x" * min(chunk, size - begin))
        longest = max(longest, len(block))
        passed.append(block)
    passed.append(splitter.flush())
    assert b"".join(passed).replace(b"\n", b"") == b"x" * size
    assert longest <= lines.MAX_LINE_BYTES + chunk + 1


@pytest.mark.parametrize(
    "block,update",
    [
        (b"a\n", False),
        (b"a\r\n", False),
        (b"a\r", True),
        (b"a\rb\n", True),
        (b"\n\r", False),
        (b"a\nb\r", False),
    ],
)
def test_begins_with_update(block, update):
    assert begins_with_update(block) is update


def test_tail_keeps_the_last_lines_of_all_streams_in_order():
    tail = Tail(limit=3)
    tail.add("stdout", b"a\nb\n")
    tail.add("stderr", b"c\n")
    tail.add("stdout", b"d\n")
    assert tail.lines() == [b"b", b"c", b"d"]


def test_tail_of_one_large_block():
    tail = Tail(limit=20)
    tail.add("stdout", b"".join(b"%d\n" % i for i in range(100000)))
    assert tail.lines() == [b"%d" % i for i in range(99980, 100000)]


def test_tail_shows_a_progress_bar_once():
    tail = Tail()
    tail.add("stdout", b"begin\n")
    for i in range(50):
        tail.add("stderr", b"%d%%\r" % i)
    assert tail.lines() == [b"begin", b"49%"]
    tail.add("stdout", b"word\n")
    assert tail.lines() == [b"begin", b"word", b"49%"]
    tail.add("stderr", b"50%\r51%\r\nend\n")
    assert tail.lines()[-2:] == [b"51%", b"end"]


def test_tail_cuts_long_lines():
    tail = Tail()
    tail.add("stdout", b"x" * 100000 + b"\n")
    assert tail.lines() == [b"x" * lines.TAIL_LINE_BYTES + b"..."]


@given(st.lists(texts))
def test_tail_takes_anything(blocks):
    tail = Tail(limit=4)
    for block in blocks:
        tail.add("stdout", block)
    assert len(tail.lines()) <= 4 and not any(b"\n" in line for line in tail.lines())
