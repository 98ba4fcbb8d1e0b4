"""Measures allreduce between the ranks of this host, from 4 bytes to 100 MB, beside a plain copy of memory.

    python benchmarks/allreduce.py -np 2          # starts itself through smddprun
    smddprun -np 2 python benchmarks/allreduce.py

Method. Each size is verified first: the ranks add up small integers, and every element of the result must be
exact. Then a tf.function runs a chain of allreduces, each of which needs the result of the last; the time of
a round is the slowest rank's, per allreduce, and the median round is shown. It contains what TensorFlow takes
to run an op.

    algbw   bytes of the tensor / time
    busbw   algbw × 2 (n − 1) / n, which can be compared between numbers of ranks
    memcpy  time to copy as many bytes, done by every rank at once: what the machine's memory can do
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Callable, Dict, List, Optional

import numpy as np
import tensorflow as tf

import tf_smddp as sdp

ELEMENT_BYTES = 4  # float32
SIZES = (4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 25 << 20, 100_000_000)
# A round takes so long at least, so that starting the function does not count.
ROUND_SECONDS = 0.01
MAX_CHAIN = 500


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Measure allreduce between the ranks of this host.")
    parser.add_argument("-np", "--num-proc", type=int, default=2, help="ranks to start (default: 2)")
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1], help="leave out larger tensors")
    parser.add_argument("--iterations", type=int, default=15, help="rounds for each size (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    return parser.parse_args()


def start_ranks(num_ranks: int) -> None:
    """Becomes the launcher, which runs this script once for each rank."""
    os.execv(
        sys.executable,
        [
            *(sys.executable, "-m", "smddprun", "-np", str(num_ranks), "--no-tag-output"),
            *(sys.executable, os.path.abspath(__file__), *sys.argv[1:]),
        ],
    )


def verify(count: int) -> None:
    """Raises an AssertionError unless an allreduce of `count` elements is exact everywhere. Collective."""
    pattern = np.arange(count, dtype=np.int64) % 97
    mine = (pattern + sdp.rank()).astype(np.float32)
    found = sdp.allreduce(tf.constant(mine), 0, 1, op=sdp.ReduceOp.SUM).numpy()
    wanted = (pattern * sdp.size() + sum(range(sdp.size()))).astype(np.float32)
    wrong = np.flatnonzero(found != wanted)
    if wrong.size:
        raise AssertionError(
            f"rank {sdp.rank()}: {wrong.size} of {count} elements are wrong, the first at {wrong[0]}: "
            f"{found[wrong[0]]} instead of {wanted[wrong[0]]}"
        )


def slowest(seconds: float) -> float:
    """The largest of all ranks' times. Collective."""
    return float(sdp.allreduce(np.float64(seconds), 0, 1, op=sdp.ReduceOp.MAX))


def median_time(run: Callable[[int], None], rounds: int) -> float:
    """The median over rounds of the slowest rank's time for one run, in seconds. Collective."""
    run(1)  # traces, touches the memory
    chain = 1
    while True:
        sdp.barrier()
        begin = time.perf_counter()
        run(chain)
        seconds = slowest(time.perf_counter() - begin)
        if seconds >= ROUND_SECONDS or chain >= MAX_CHAIN:
            break
        chain = min(chain * 4, MAX_CHAIN)
    times = []
    for _ in range(rounds):
        sdp.barrier()
        begin = time.perf_counter()
        run(chain)
        times.append(slowest(time.perf_counter() - begin) / chain)
    return float(np.median(times))


def measure(count: int, rounds: int) -> Dict[str, float]:
    """Times allreduce and memcpy of `count` elements. Collective."""

    @tf.function
    def chain(tensor: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(length):
            tensor = sdp.allreduce(tensor, 0, 1)
        return tensor[0]

    tensor = tf.ones([count])
    source, target = np.ones(count, np.float32), np.zeros(count, np.float32)

    def copy(length: int) -> None:
        for _ in range(length):
            np.copyto(target, source)

    seconds = median_time(lambda length: float(chain(tensor, tf.constant(length))), rounds)
    size_bytes = count * ELEMENT_BYTES
    algbw = size_bytes / seconds
    return {
        "bytes": size_bytes,
        "seconds": seconds,
        "algbw_bytes_per_second": algbw,
        "busbw_bytes_per_second": algbw * 2 * (sdp.size() - 1) / sdp.size(),
        "memcpy_seconds": median_time(copy, rounds),
    }


def row(figures: Optional[Dict[str, float]] = None) -> str:
    """A line of the table; without figures its head."""
    if figures is None:
        cells: List[str] = ["bytes", "time [us]", "algbw [GB/s]", "busbw [GB/s]", "memcpy [us]"]
    else:
        cells = [
            f"{figures['bytes']:.0f}",
            f"{figures['seconds'] * 1e6:.1f}",
            f"{figures['algbw_bytes_per_second'] / 1e9:.3f}",
            f"{figures['busbw_bytes_per_second'] / 1e9:.3f}",
            f"{figures['memcpy_seconds'] * 1e6:.1f}",
        ]
    return "".join(f"{cell:>14}" for cell in cells)


def main() -> int:
    """Runs the benchmark as one rank, or starts the ranks; returns the exit code."""
    arguments = parse_arguments()
    if "SMDDP_RANK" not in os.environ:
        start_ranks(arguments.num_proc)

    sdp.init()
    results = []
    if sdp.rank() == 0:
        print(f"allreduce, float32, average, ranks: {sdp.size()}, TensorFlow {tf.__version__}")
        print(row(), flush=True)
    for size_bytes in SIZES:
        if size_bytes > arguments.max_bytes:
            continue
        verify(size_bytes // ELEMENT_BYTES)
        results.append(measure(size_bytes // ELEMENT_BYTES, arguments.iterations))
        if sdp.rank() == 0:
            print(row(results[-1]), flush=True)
    if arguments.json and sdp.rank() == 0:
        with open(arguments.json, "w") as file:
            json.dump({"ranks": sdp.size(), "tensorflow": tf.__version__, "results": results}, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
