"""The program of a rank of the self test: it joins the job, reduces, broadcasts, and checks the results."""

from __future__ import annotations

import array
import importlib.util
import os
import socket
import sys
from typing import Any

from smddprun.check import findings

KIND = "self-test"
# More than what the last rank to arrive reduces by itself (SMDDP_SMALL_BYTES), and an odd number.
_COUNT = 100_003


def main() -> int:
    """Runs the test; the exit code is 0 if all results are right."""
    if importlib.util.find_spec("tensorflow") is None:
        return _without_tensorflow()
    import tensorflow as tf

    import tf_smddp as sdp

    sdp.init()
    rank, size = sdp.rank(), sdp.size()
    device = _device(tf, sdp.local_rank())
    with tf.device(device):
        numbers = tf.range(_COUNT, dtype=tf.float32)
        total = sdp.allreduce(numbers + float(rank), 0, 1, op=sdp.ReduceOp.SUM)
        sent = sdp.broadcast(numbers * float(1 + rank), root_rank=size - 1)
        few = sdp.allreduce(tf.fill([3], float(rank)), 0, 1)
    # Whole numbers of this size are exact in float32.
    right = {
        "allreduce": numbers * float(size) + float(size * (size - 1) // 2),
        "broadcast": numbers * float(size),
        "average": tf.fill([3], (size - 1) / 2),
    }
    for name, result in (("allreduce", total), ("broadcast", sent), ("average", few)):
        if not bool(tf.reduce_all(result == right[name])):
            sys.stderr.write(f"rank {rank}: the result of {name} on {result.device} is wrong\n")
            return 1
    _say(rank, size, device)
    sdp.barrier()
    return 0


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
    _say(rank, size, "CPU:0")
    smddp.barrier()
    return 0


def _say(rank: int, size: int, device: str) -> None:
    what = {"rank": rank, "size": size, "host": socket.gethostname(), "device": device}
    os.write(1, findings.encode(KIND, what).encode())


def _device(tf: Any, local_rank: int) -> str:
    """The GPU of this rank, if it has one, else the CPU. As in training, the ranks of a host take turns."""
    config = tf.config
    gpus = config.list_physical_devices("GPU")
    if not gpus:
        return "CPU:0"
    own = gpus[local_rank % len(gpus)]
    config.set_visible_devices(own, "GPU")
    config.experimental.set_memory_growth(own, True)
    return "GPU:0"
