"""Each text that docs/troubleshooting.md quotes is one that the sources have."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
FOLDERS = {"tf_smddp": ("*.py",), "smddprun": ("*.py",), "kernels": ("*.cc", "*.h")}
# What a text has in place of a value: an expression of Python's, or one between two strings in C++.
VALUE = "\x00"


def texts_of(source):
    """The strings of a file as they are put together, with VALUE for what is not in them."""
    source = re.sub(r'\\"', "'", source)
    source = re.sub(r'"\s*\n?\s*f?"', "", source)  # neighbours are one string
    source = re.sub(r"\{[^{}\n]*\}", VALUE, source)  # f"{value}"
    return re.sub(r'"\s*\+[^;"]*\+\s*"', VALUE, source)  # "a" + value + "b"


@pytest.fixture(scope="module")
def sources():
    paths = [path for folder, ends in FOLDERS.items() for end in ends for path in (ROOT / folder).rglob(end)]
    return "\n".join(texts_of(path.read_text()) for path in paths)


def pieces(text):
    """What stands between the values of a quoted text."""
    return [each for each in (piece.strip() for piece in text.replace('"', "'").split("…")) if len(each) > 3]


QUOTED = re.findall(r"^> (.*)$", PAGE.read_text(), re.MULTILINE)


def test_there_are_texts():
    assert len(QUOTED) > 50
    assert len(set(QUOTED)) == len(QUOTED)


@pytest.mark.parametrize("text", QUOTED)
def test_the_sources_have_the_text(text, sources):
    assert pieces(text)
    missing = [piece for piece in pieces(text) if piece not in sources]
    assert not missing, f"docs/troubleshooting.md quotes what no source has: {missing}"


def test_a_text_that_is_not_there_is_found(sources):
    assert pieces("init() waited … s for rank(s) …") == ["init() waited", "s for rank(s)"]
    assert "init() waited a while for rank(s)" not in sources
