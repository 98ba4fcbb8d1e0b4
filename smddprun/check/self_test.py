"""The program of a rank of the self test: it joins the job, runs each collective, and checks the results.

With the argument `bandwidth` it measures allreduce, too, if each rank has a GPU of its own. With
`whole-memory` TensorFlow takes all of a GPU's memory at once, as it does in scripts that do not set memory
growth; NCCL has to do with what is left.
"""

from __future__ import annotations

import array
import importlib.util
import os
import socket
import sys
from typing import Any

from smddprun.check import bandwidth, findings

KIND = "self-test"
BANDWIDTH, WHOLE_MEMORY = "bandwidth", "whole-memory"
# More than what the last rank to arrive reduces by itself (SMDDP_SMALL_BYTES), and an odd number.
_COUNT = 100_003
# The collectives that NCCL has, by their names in stats().
_MOVING = ("allgather", "allreduce", "alltoall", "broadcast", "reducescatter")
_ROWS = 1000  # for each rank


def main() -> int:
    """Runs the test; the exit code is 0 if all results are right."""
    if importlib.util.find_spec("tensorflow") is None:
        return _without_tensorflow()
    import tensorflow as tf

    import tf_smddp as sdp

    sdp.init()
    number = _choose_gpu(tf, sdp.local_rank(), WHOLE_MEMORY not in sys.argv)
    device = "CPU:0" if number is None else "GPU:0"
    with tf.device(device):
        wrong = _wrong_results(tf, sdp)
    if wrong:
        sys.stderr.write(f"rank {sdp.rank()}: the result of {wrong} on {device} is wrong\n")
        return 1
    figures = sdp.stats()["collectives"]
    past = [name for name in _MOVING if not figures[name]["nccl_bytes"]]
    _say(sdp.rank(), "CPU:0" if number is None else f"GPU:{number}", "each collective is right", past)
    if BANDWIDTH in sys.argv and number is not None:
        rates = bandwidth.measure(tf, sdp, number)
        if sdp.rank() == 0:
            os.write(1, findings.encode(bandwidth.KIND, rates).encode())
    sdp.barrier()
    return 0


def _wrong_results(tf: Any, sdp: Any) -> str:
    """Runs each collective, twice. Returns the name of the first one with a wrong result, or ""."""
    import numpy as np

    rank, size = sdp.rank(), sdp.size()
    numbers = np.arange(_COUNT, dtype=np.float32)
    rows = np.arange(size * _ROWS, dtype=np.float32)
    own = rows[rank * _ROWS : (rank + 1) * _ROWS]
    ranks, sum_of_ranks = np.arange(size, dtype=np.float32), size * (size - 1) // 2
    add = sdp.ReduceOp.SUM
    for _ in range(2):
        mine, few, lines = (tf.constant(numbers + rank), tf.fill([3], float(rank)), tf.constant(rows + rank))
        total = numbers * size + sum_of_ranks
        group = sdp.grouped_allreduce([mine, few], op=add)
        # Sums of whole numbers of this size are exact in float32; averages may be rounded.
        for name, found, right, tolerance in (
            ("allreduce", sdp.allreduce(mine, 0, 1, op=add), total, 0.0),
            ("an average", sdp.allreduce(few, 0, 1), np.full(3, (size - 1) / 2), 1e-6),
            ("grouped_allreduce", group[0], total, 0.0),
            ("grouped_allreduce", group[1], np.full(3, sum_of_ranks), 0.0),
            ("broadcast", sdp.broadcast(mine, size - 1), numbers + size - 1, 0.0),
            ("allgather", sdp.allgather(few), np.repeat(ranks, 3), 0.0),
            ("reducescatter", sdp.reducescatter(lines, op=add), own * size + sum_of_ranks, 0.0),
            ("alltoall", sdp.alltoall(lines), (own + ranks[:, None]).ravel(), 0.0),
        ):
            if found.shape != right.shape or not np.allclose(found.numpy(), right, tolerance, 0.0):
                return name
    return ""


def _without_tensorflow() -> int:
    import smddp

    smddp.init()
    rank, size = smddp.rank(), smddp.size()
    numbers = array.array("f", range(rank, _COUNT + rank))
    smddp.allreduce(numbers)
    sent = array.array("i", [rank] * _COUNT)
    smddp.broadcast(sent, root=size - 1)
    first = size * (size - 1) // 2
    for name, result, right in (
        ("allreduce", numbers, array.array("f", range(first, first + size * _COUNT, size))),
        ("broadcast", sent, array.array("i", [size - 1] * _COUNT)),
    ):
        if result != right:
            sys.stderr.write(f"rank {rank}: the result of {name} is wrong\n")
            return 1
    _say(rank, "CPU:0", "init, allreduce and broadcast are right", [])
    smddp.barrier()
    return 0


def _say(rank: int, device: str, right: str, past_nccl: list[str]) -> None:
    host = socket.gethostname()
    what = {"rank": rank, "host": host, "device": device, "right": right, "past_nccl": past_nccl}
    os.write(1, findings.encode(KIND, what).encode())


def _choose_gpu(tf: Any, local_rank: int, growth: bool) -> int | None:
    """Chooses this rank's GPU, and returns its number; None without one. The ranks of a host take turns."""
    config = tf.config
    gpus = config.list_physical_devices("GPU")
    if not gpus:
        return None
    own = gpus[local_rank % len(gpus)]
    config.set_visible_devices(own, "GPU")
    if growth:
        config.experimental.set_memory_growth(own, True)
    return int(own.name.rpartition(":")[2])
