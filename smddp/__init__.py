"""Collectives among the processes of a job, without a framework: the engine's C API in Python.

    import smddp

    smddp.init()
    smddp.allreduce(array)  # of NumPy: its sum over all ranks replaces it
    smddp.shutdown()

Started by `smddprun -np 2 python script.py`. tf_smddp builds on this package, and brings the engine in its op
library (`use_library`); else the engine is libsmddp.so in this folder. It imports no framework and no NumPy.

Every function may be called by any thread, several at once, where its text does not say otherwise. Sizes are
in bytes where a name says so, else in elements. Functions raise RuntimeError with the engine's text, which
names the rank, the cause and the remedy. A function that is *collective* must be called by all ranks that it
names. kernels/process/smddp.h says how requests of the ranks meet.
"""

from smddp import metrics as _metrics  # noqa: F401  (it adds to what init() and shutdown() do)
from smddp.communicators import (
    WORLD,
    communicator_rank,
    communicator_size,
    create_communicator,
    create_communicator_among,
    draw_ticket,
    fail,
    leave_and_return,
    remove_communicator,
)
from smddp.library import FoundLibrary, found_libraries, use_library
from smddp.requests import (
    Buffer,
    Collective,
    DType,
    Operation,
    ReduceOp,
    Request,
    allocate,
    allreduce,
    barrier,
    broadcast,
    is_in_arena,
)
from smddp.runtime import init, is_initialized, local_rank, local_size, rank, shutdown, size
from smddp.watching import start_timeline, stats, stop_timeline

__all__ = [
    "WORLD",
    "Buffer",
    "Collective",
    "DType",
    "FoundLibrary",
    "Operation",
    "ReduceOp",
    "Request",
    "allocate",
    "allreduce",
    "barrier",
    "broadcast",
    "communicator_rank",
    "communicator_size",
    "create_communicator",
    "create_communicator_among",
    "draw_ticket",
    "fail",
    "found_libraries",
    "init",
    "is_in_arena",
    "is_initialized",
    "leave_and_return",
    "local_rank",
    "local_size",
    "rank",
    "remove_communicator",
    "shutdown",
    "size",
    "start_timeline",
    "stats",
    "stop_timeline",
    "use_library",
]
