"""What this rank's collectives cost: figures, a timeline, and both in files for the launcher.

`smddprun --timeline` and `--summary` set the variables that ask for files, and put the ranks' files together.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import resource
import time
import warnings
from typing import Any, Dict, Union

from smddp import runtime
from smddp.library import check, engine, text_of

TIMELINE = "SMDDP_TIMELINE"
SUMMARY = "SMDDP_SUMMARY"

# Enough for the figures of the largest number of communicators.
_TEXT_BYTES = 1 << 18

_began = 0.0  # the time of init(), of a steady clock


def stats(reset: bool = False) -> Dict[str, Any]:
    """Returns the cost of this rank's collectives since `init` or the last reset.

    They are plain numbers, lists and dicts, which docs/watching.md describes. It takes a few microseconds.

    Args:
        reset: True sets all counts to 0 after this call.

    Raises:
        RuntimeError: not in a job, or in a forked child.
    """
    runtime.require_initialized("stats")
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    check(engine().smddp_stats(bool(reset), text, _TEXT_BYTES))
    figures: Dict[str, Any] = json.loads(text_of(text.value))
    return figures


def start_timeline(file: Union[str, os.PathLike]) -> None:
    """Writes a timeline of this rank's collectives, a Chrome trace, until `stop_timeline` or `shutdown`.

    Args:
        file: its path, which must be another one for each rank.

    Raises:
        RuntimeError: not in a job, a timeline is being written already, or the file cannot be written.
    """
    check(engine().smddp_start_timeline(os.fsencode(file)))


def stop_timeline() -> None:
    """Ends the timeline, if there is one.

    Raises:
        RuntimeError: a part of the file could not be written.
    """
    check(engine().smddp_stop_timeline())


def of_this_rank(file: Union[str, os.PathLike]) -> pathlib.Path:
    """Returns the path with the rank in the file's name."""
    path = pathlib.Path(os.fspath(file))
    return path.with_name(f"{path.stem}.rank{runtime.rank()}{path.suffix}")


def _after_init() -> None:
    global _began
    _began = time.monotonic()
    timeline = os.environ.get(TIMELINE)
    if timeline:
        try:
            start_timeline(of_this_rank(timeline))
        except RuntimeError as error:
            warnings.warn(f"{TIMELINE}={timeline}: {error}. There is no timeline.", stacklevel=3)


def _before_shutdown() -> None:
    path = os.environ.get(SUMMARY)
    if path:
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        figures = {**stats(), "seconds": time.monotonic() - _began, "peak_memory_bytes": peak_bytes}
        try:
            of_this_rank(path).write_text(json.dumps(figures))
        except OSError as error:
            warnings.warn(f"{SUMMARY}={path}: {error}. There are no figures of this rank.", stacklevel=3)


runtime.after_init.append(_after_init)
runtime.before_shutdown.append(_before_shutdown)
