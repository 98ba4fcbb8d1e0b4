"""start_profiler, stop_profiler: a timeline of this rank's collectives (see docs/watching.md).

kernels/engine/watch/timeline.h writes the file.
"""

from __future__ import annotations

import os
import pathlib
from typing import Union

from tf_smddp import _library
from tf_smddp._autograph import not_converted
from tf_smddp._runtime import call, rank, require_initialized

_lib = _library.load()[1]


@not_converted
def start_profiler(file: Union[str, os.PathLike], append_rank: bool = True) -> None:
    """Writes a timeline of this rank's collectives to a file, until `stop_profiler` or the end of the job.

    This is not a collective: each rank writes its own file. The file is a Chrome trace: open it with Perfetto
    (https://ui.perfetto.dev) or chrome://tracing. It can also be opened while it is being written, and after
    the process was killed; then up to 64 KiB at the end are missing. Inside a `tf.function` it is called
    once, when the function is traced.

    Args:
        file: the path of the file, which is created or overwritten; its directory must exist.
        append_rank: whether to add the rank to the name: "trace.json" becomes "trace.rank3.json" on rank 3.
            If False, give each rank another path.

    Raises:
        TypeError: `file` is not a path.
        RuntimeError: before `init` or after `shutdown`, a timeline is being written already, or the file
            cannot be written (the text says why).
    """
    require_initialized("start_profiler")
    path = of_this_rank(file) if append_rank else pathlib.Path(os.fspath(file))
    call(_lib.smddp_start_timeline, os.fsencode(path))


def of_this_rank(file: Union[str, os.PathLike]) -> pathlib.Path:
    """Returns the path with the rank in the file's name."""
    path = pathlib.Path(os.fspath(file))
    return path.with_name(f"{path.stem}.rank{rank()}{path.suffix}")


@not_converted
def stop_profiler() -> None:
    """Ends the timeline that `start_profiler` has begun, if there is one. `shutdown` calls it, too.

    Raises:
        RuntimeError: a part of the file could not be written.
    """
    call(_lib.smddp_stop_timeline)
