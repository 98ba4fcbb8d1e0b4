"""start_profiler, stop_profiler, stats: what collectives do and cost (docs/watching.md)."""

from __future__ import annotations

import os
from typing import Any, Union

import smddp
from smddp.runtime import require_initialized
from smddp.watching import of_this_rank, start_timeline, stop_timeline
from tf_smddp._collectives.objects import allgather_object


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
    start_timeline(of_this_rank(file) if append_rank else file)


def stop_profiler() -> None:
    """Ends the timeline that `start_profiler` has begun, if there is one. `shutdown` calls it, too.

    Raises:
        RuntimeError: a part of the file could not be written.
    """
    stop_timeline()


def stats(reset: bool = False, all_ranks: bool = False) -> Any:
    """Returns the cost of the collectives since `init` or the last reset, of this rank or of all ranks.

    With `all_ranks`, this is collective, as `allgather_object`. Else it is not: each rank has its own
    figures, it takes a few microseconds, and may be called at any time from any thread. Inside a
    `tf.function` it is called once, when the function is traced.

    Args:
        reset: True sets all counts to 0 after this call.
        all_ranks: True returns a list with the figures of each rank.

    Returns:
        A dict of plain numbers, lists and dicts, or a list of such, by rank:

        - "rank", "size": this rank, and the number of ranks.
        - "arena_bytes", "arena_used_bytes", "arena_peak_bytes", "arena_refused_calls": the maximum size of
          this rank's shared memory, the bytes in use, their maximum so far, and the number of tensors that
          had no room there; 0 in a job of one rank.
        - "collectives": a dict for each kind ("allreduce", "broadcast", "barrier", "allgather",
          "reducescatter", "alltoall"), summed over all process sets, including removed ones: "calls"
          (completed calls), "errors" (calls that have ended with an error), "bytes" (of this rank's inputs),
          "staged_bytes" (the part of "bytes" that was copied through windows, because some rank's tensor was
          in private memory), "nccl_bytes" (the part that NCCL moved between GPUs), "in_place_bytes" (the part
          whose result replaced the input), "small_calls" (calls without a batch), "waiting_seconds" (the
          sum of all calls' waiting times for other ranks), "moving_seconds" (the time spent reading,
          combining and writing data; on GPUs, starting that).
        - "process_sets": a list with a dict for each set that this rank is in: "id", "ranks", "batches"
          (groups of requests that ran together), "batch_bytes" (of this rank's inputs in them), "deferred"
          (requests that had to wait until an earlier use of the same key had ended), "failures" (steps that
          have failed on all ranks), "steps" (completed groups of several tensors, such as the gradients of
          a step), "last_steps" (the steps in which this rank was the last to arrive, at the first tensor of
          the group), "step_seconds" (the average time from the end of one to the end of the next),
          "blocked_seconds" (the time that has passed from the submission of the last tensor of a group to the
          end of the group, and from the begin to the end of other calls; what overlaps counts
          once), and "collectives" as above.

    Raises:
        RuntimeError: before `init`, after `shutdown`, or in a forked child; with `all_ranks`, also in a
            function that is traced.
    """
    figures = smddp.stats(reset)
    return allgather_object(figures, name="stats") if all_ranks else figures
