"""Files of a rank for its launcher, as environment variables ask: a timeline, and figures at the end.

`smddprun --timeline` and `--summary` set the variables, and put the ranks' files together.
"""

from __future__ import annotations

import json
import os
import resource
import time
import warnings

from tf_smddp import _profiler, _runtime
from tf_smddp._stats import stats

TIMELINE = "SMDDP_TIMELINE"
SUMMARY = "SMDDP_SUMMARY"

_began = 0.0  # the time of init(), of a steady clock


def _after_init() -> None:
    global _began
    _began = time.monotonic()
    timeline = os.environ.get(TIMELINE)
    if timeline:
        try:
            _profiler.start_profiler(timeline)
        except RuntimeError as error:
            warnings.warn(f"{TIMELINE}={timeline}: {error}. There is no timeline.", stacklevel=4)


def _before_shutdown() -> None:
    path = os.environ.get(SUMMARY)
    if path:
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        figures = {**stats(), "seconds": time.monotonic() - _began, "peak_memory_bytes": peak_bytes}
        try:
            _profiler.of_this_rank(path).write_text(json.dumps(figures))
        except OSError as error:
            warnings.warn(f"{SUMMARY}={path}: {error}. There are no figures of this rank.", stacklevel=4)


_runtime.after_init.append(_after_init)
_runtime.before_shutdown.append(_before_shutdown)
