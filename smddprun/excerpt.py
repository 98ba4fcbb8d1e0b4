"""Chooses what the report of a job that failed shows of a rank's last lines. Pure. Lines are bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_LINES = 20

# A frame of a traceback, and the lines that belong to it: its code, and the marks below it.
_FRAME = re.compile(rb'\s*File "(?P<file>[^"]*)", line \d+')
_LIBRARY = re.compile(rb"/(site|dist)-packages/")
_OURS = b"[tf_smddp rank "
# TensorFlow's lines of information, and its log of a step's error, which it also raises.
_NOISE = re.compile(
    rb"I\d{4} |WARNING: All log messages before absl::|\d{4}-\d\d-\d\d [^ ]*: I |.*\blocal_rendezvous\.cc:"
)


def explains(lines: Sequence[bytes]) -> bool:
    """Whether the engine has written in these lines why the job ends, not only which rank is to blame."""
    return any(
        line.startswith(_OURS) and b" error] " in line and b" error] stopped" not in line for line in lines
    )


def excerpt(lines: Sequence[bytes]) -> list[bytes]:
    """Returns the lines that say most: MAX_LINES at most, in their order, but the engine's last.

    Left out are blank lines, lines of TensorFlow's log that say no more, and the frames of installed packages
    in a traceback, of which TensorFlow and Keras have many. The engine's own messages say why a collective
    has failed, so they stand at the end.

    Args:
      lines: the last lines of a rank, oldest first.
    """
    kept: list[bytes] = []
    indent = None  # of the frame that is left out
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if indent is not None and depth > indent and line.strip():
            continue
        frame = _FRAME.match(line)
        indent = depth if frame and _LIBRARY.search(frame["file"]) else None
        if indent is None and line.strip() and not _NOISE.match(line):
            kept.append(line)
    ours = [line for line in kept if line.startswith(_OURS)][-MAX_LINES:]
    others = [line for line in kept if not line.startswith(_OURS)]
    return others[max(0, len(others) - (MAX_LINES - len(ours))) :] + ours
