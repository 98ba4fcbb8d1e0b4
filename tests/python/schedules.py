"""Runs random schedules of mixed collectives as one rank, and compares each result with NumPy's.

    smddprun -np 3 python schedules.py FIRST_SEED COUNT

A seed makes one schedule, the same on all ranks: collectives of all kinds, types and operations, on the
world and on a smaller process set, one after the other or each set in a thread of its own, in eager mode or
in a tf.function. Delays differ by rank. Ends with an error that names the seed as soon as a result is wrong.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
import threading
import time
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow as tf

import tf_smddp as sdp

TYPES = (
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128),
)
KINDS = ("allreduce", "group", "broadcast", "allgather", "reducescatter", "alltoall", "barrier")
ROW_SHAPES = ((), (3,), (2, 5), (0,), (701,))


@dataclasses.dataclass
class Call:
    """One collective of a schedule; everything in it is the same on all ranks."""

    kind: str
    on_world: bool
    dtype: tf.DType
    op: sdp.ReduceOp
    scale: Tuple[float, float]
    rows: np.ndarray  # [rank, rank]: rows from each to each; others use what they need of it
    row_shape: Tuple[int, ...]
    root: int  # a position among the ranks of its set
    salt: int

    def values(self, rank: int, rows: int, salt: int = 0) -> np.ndarray:
        """A rank's input of so many rows: small integers, exact in every type."""
        random = np.random.default_rng([self.salt, salt, rank])
        values = random.integers(0, 4, (rows, *self.row_shape))
        if self.dtype == tf.bool:
            return values % 2 == 1
        if self.dtype.is_complex:
            return (values + 1j * random.integers(-2, 3, values.shape)).astype(self.dtype.as_numpy_dtype)
        return values.astype(self.dtype.as_numpy_dtype)


def make_schedule(seed: int, size: int, members: List[int]) -> List[Call]:
    """Returns the calls of a seed."""
    random = np.random.default_rng(seed)
    calls = []
    for salt in range(int(random.integers(3, 10))):
        dtype = TYPES[random.integers(len(TYPES))]
        ops = [op for op in sdp.ReduceOp if op_defined(dtype, op)]
        inexact = dtype.is_floating or dtype.is_complex
        scaled = inexact and random.random() < 0.3
        on_world = bool(random.random() < 0.6)
        calls.append(
            Call(
                kind=KINDS[random.integers(len(KINDS))],
                on_world=on_world,
                dtype=dtype,
                op=ops[random.integers(len(ops))],
                scale=(0.5, 4.0) if scaled else (1.0, 1.0),
                rows=random.integers(0, 40 if random.random() < 0.1 else 6, (size, size)),
                row_shape=ROW_SHAPES[random.integers(len(ROW_SHAPES))],
                root=int(random.integers(size if on_world else len(members))),
                salt=1000 * seed + salt,
            )
        )
    return calls


def op_defined(dtype: tf.DType, op: sdp.ReduceOp) -> bool:
    """Whether a reduction is defined for a type."""
    extremum = op in (sdp.ReduceOp.MIN, sdp.ReduceOp.MAX)
    if dtype == tf.bool:
        return extremum
    return not (dtype.is_complex and extremum)


def reduce(inputs: List[np.ndarray], call: Call) -> np.ndarray:
    """NumPy's result of the ranks' inputs, in the wider type where a result is rounded once."""
    dtype = call.dtype.as_numpy_dtype
    if call.dtype == tf.bool:
        return (np.all if call.op == sdp.ReduceOp.MIN else np.any)(inputs, axis=0)
    wide = {tf.float16: np.float32, tf.bfloat16: np.float32}.get(call.dtype, dtype)
    if call.dtype.is_integer and call.op == sdp.ReduceOp.AVERAGE:
        exact = np.sum([each.astype(np.int64) for each in inputs], axis=0)
        return (np.sign(exact) * (np.abs(exact) // len(inputs))).astype(dtype)
    before, after = (np.asarray(factor).astype(wide) for factor in call.scale)
    scaled = np.stack([each.astype(wide) * before for each in inputs])
    if call.op == sdp.ReduceOp.PRODUCT:
        result = np.multiply.reduce(scaled, axis=0, dtype=wide)
    elif call.op == sdp.ReduceOp.MIN:
        result = np.min(scaled, axis=0)
    elif call.op == sdp.ReduceOp.MAX:
        result = np.max(scaled, axis=0)
    else:
        result = np.add.reduce(scaled, axis=0, dtype=wide)
    if call.op == sdp.ReduceOp.AVERAGE:
        # NumPy divides complex numbers by complex ones; ours is the quotient of each part.
        parts = np.ascontiguousarray(result).view(result.real.dtype)
        result = (parts / np.asarray(len(inputs)).astype(parts.dtype)).view(wide).reshape(result.shape)
    return (result * after).astype(dtype)


def run_call(call: Call, process_set: Any, ranks: List[int]) -> Tuple[List[tf.Tensor], List[np.ndarray]]:
    """Runs the collective, or emits it; returns its results, and what they must be."""
    me = ranks.index(sdp.rank())
    count = len(ranks)
    common = {"process_set": process_set}
    factors = {"prescale_factor": call.scale[0], "postscale_factor": call.scale[1]}
    if call.kind == "barrier":
        sdp.barrier(**common)
        return [], []
    same = int(call.rows[0, 0])
    if call.kind in ("allreduce", "group"):
        tensors = 1 if call.kind == "allreduce" else 3
        inputs = [[call.values(rank, same + i, i) for rank in ranks] for i in range(tensors)]
        if tensors == 1:
            found = [sdp.allreduce(inputs[0][me], 0, 1, op=call.op, **factors, **common)]
        else:
            mine = [tf.constant(each[me]) for each in inputs]
            found = sdp.grouped_allreduce(mine, op=call.op, **factors, **common)
        wanted = [reduce(each, call) for each in inputs]
    elif call.kind == "broadcast":
        inputs = [call.values(rank, same) for rank in ranks]
        found = [sdp.broadcast(inputs[me], ranks[call.root], **common)]
        wanted = [inputs[call.root]]
    elif call.kind == "allgather":
        inputs = [call.values(rank, int(call.rows[0, i])) for i, rank in enumerate(ranks)]
        found = [sdp.allgather(inputs[me], **common)]
        wanted = [np.concatenate(inputs)]
    elif call.kind == "reducescatter":
        inputs = [call.values(rank, same) for rank in ranks]
        found = [sdp.reducescatter(inputs[me], op=call.op, **factors, **common)]
        wanted = [np.array_split(reduce(inputs, call), count)[me]]
    else:
        splits = call.rows[:count, :count]
        inputs = [call.values(rank, int(splits[i].sum())) for i, rank in enumerate(ranks)]
        found = list(sdp.alltoall(inputs[me], splits=splits[me].astype(np.int64), **common))
        ends = np.cumsum(splits, axis=1)
        parts = [inputs[i][ends[i, me] - splits[i, me] : ends[i, me]] for i in range(count)]
        wanted = [np.concatenate(parts), splits[:, me].astype(np.int64)]

    return found, wanted


def check(call: Call, found: List[tf.Tensor], wanted: List[np.ndarray]) -> None:
    """Compares value, type and shape."""
    assert len(found) == len(wanted), call
    for result, expected in zip(found, wanted):
        value = result.numpy()
        same = value.dtype == expected.dtype and value.shape == expected.shape
        if not same or not np.array_equal(value, expected):
            raise AssertionError(f"{call}: {value!r} is not {expected!r}")


def run_schedule(seed: int, process_set: Any, members: List[int]) -> None:
    """Runs the schedule of a seed and checks it."""
    world = list(range(sdp.size()))
    calls = make_schedule(seed, len(world), members)
    delays = np.random.default_rng([seed, sdp.rank()])
    mine = [call for call in calls if call.on_world or sdp.rank() in members]

    def emit(call: Call) -> Tuple[List[tf.Tensor], List[np.ndarray]]:
        return run_call(call, *((sdp.global_process_set, world) if call.on_world else (process_set, members)))

    def run(part: List[Call], pauses: List[float]) -> None:
        for call, pause in zip(part, pauses):
            time.sleep(pause)
            check(call, *emit(call))

    pauses = [
        float(pause) if delays.random() < 0.3 else 0.0 for pause in delays.exponential(0.001, len(mine))
    ]
    if seed % 25 == 0:
        # All collectives are in one function, so they are pending together.
        wanted: List[List[np.ndarray]] = []

        @tf.function
        def together() -> List[List[tf.Tensor]]:
            outputs = []
            for call in mine:
                found, expected = emit(call)
                outputs.append(found)
                wanted.append(expected)
            return outputs

        for call, found, expected in zip(mine, together(), wanted):
            check(call, found, expected)
    elif seed % 3 == 0:
        failures: List[BaseException] = []

        def guarded(part: List[Call]) -> None:
            try:
                run(part, pauses)
            except BaseException as error:  # raised again below, in the main thread
                failures.append(error)

        parts = [[call for call in mine if call.on_world is on_world] for on_world in (True, False)]
        threads = [threading.Thread(target=guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
    else:
        run(mine, pauses)


def resources() -> Tuple[int, int, int]:
    """Returns what this process holds: descriptors, threads of ours, resident memory in bytes."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    threads = sum(name.startswith("smddp") for name in thread_names())
    return len(os.listdir("/proc/self/fd")), threads, pages * os.sysconf("SC_PAGE_SIZE")


def thread_names() -> Iterator[str]:
    """Yields the names of this process's threads, but of none that is ending: it may have been joined."""
    exiting = 4  # PF_EXITING of the kernel's task flags
    for thread in os.listdir("/proc/self/task"):
        try:
            stat = pathlib.Path(f"/proc/self/task/{thread}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, fields = stat.split("(", 1)[1].rsplit(")", 1)
        if not int(fields.split()[6]) & exiting:
            yield name


def main() -> None:
    """Runs the schedules that the arguments name; writes what they cost to the reports of the test."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    sdp.init()
    before: Optional[Tuple[int, int, int]] = None
    process_set = None
    for seed in range(first, first + count):
        if (seed - first) % max(1, count // 10) == 0:
            # A new smaller set now and then, in the memory of the one before.
            if process_set is not None:
                sdp.remove_process_set(process_set)
            if seed - first >= count // 2 and before is None:
                before = resources()
            random = np.random.default_rng([first, seed])
            members = sorted(random.choice(sdp.size(), max(1, sdp.size() - 1), replace=False).tolist())
            process_set = sdp.add_process_set(members)
        try:
            run_schedule(seed, process_set, members)
        except Exception as error:
            raise AssertionError(f"schedule {seed} of {sdp.size()} ranks: {error}") from error
    sdp.remove_process_set(process_set)
    report = {"schedules": count, "before": before, "after": resources()}
    with open(f"{os.environ['TF_SMDDP_TEST_REPORTS']}/{sdp.rank()}", "a") as file:
        file.writelines(json.dumps(item) + "\n" for item in report.items())
    sdp.shutdown()


if __name__ == "__main__":
    main()
