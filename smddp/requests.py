"""Requests: one tensor's part in a collective, on this rank, and the memory for it."""

from __future__ import annotations

import ctypes
import enum
import itertools
import time
import weakref
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from smddp.communicators import WORLD
from smddp.library import DONE, check, engine, text_of


class Collective(enum.IntEnum):
    """The kinds of requests; smddp.h describes them."""

    ALLREDUCE = 0
    BROADCAST = 1
    BARRIER = 2
    ALLGATHER = 3
    REDUCE_SCATTER = 4
    ALLTOALL = 5


class DType(enum.IntEnum):
    """The types of elements. The names are those of NumPy's and the frameworks' types, in capitals."""

    FLOAT16 = 0
    BFLOAT16 = 1
    FLOAT32 = 2
    FLOAT64 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    BOOL = 7
    INT8 = 8
    INT16 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    COMPLEX64 = 13
    COMPLEX128 = 14


# The codes of memoryview() and of the module struct.
_FORMATS = {
    "e": DType.FLOAT16,
    "f": DType.FLOAT32,
    "d": DType.FLOAT64,
    "?": DType.BOOL,
    "b": DType.INT8,
    "h": DType.INT16,
    "i": DType.INT32,
    "l": DType.INT64,
    "q": DType.INT64,
    "B": DType.UINT8,
    "H": DType.UINT16,
    "I": DType.UINT32,
    "L": DType.UINT64,
    "Q": DType.UINT64,
    "Zf": DType.COMPLEX64,
    "Zd": DType.COMPLEX128,
}


class ReduceOp(enum.Enum):
    """How a reduction combines the tensors of all ranks, element by element.

    float16 and bfloat16 are added up in float32 and rounded once. Integers wrap; but their average is that of
    the exact sum, cut towards zero. MIN and MAX hand a NaN on. bool has MIN (logical and) and MAX (logical
    or) only; complex types have neither.
    """

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


_NUMBERS = {
    each: number
    for number, each in enumerate(
        (ReduceOp.SUM, ReduceOp.AVERAGE, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT)
    )
}


def resolve_reduce_op(op: Optional[ReduceOp]) -> ReduceOp:
    """Returns the ReduceOp that a user's `op=` argument means; None is AVERAGE.

    Raises:
        TypeError: `op` is neither None nor a ReduceOp.
    """
    if op is None:
        return ReduceOp.AVERAGE
    if not isinstance(op, ReduceOp):
        names = ", ".join(f"ReduceOp.{member.name}" for member in ReduceOp)
        raise TypeError(f"op must be one of {names} or None, but is {op!r}.")
    return op


class Buffer(ctypes.Structure):
    """Where a tensor lies: smddp_buffer.

    Attributes:
        data: its address.
        bytes: the room there.
        memory: 0 is memory that the CPU may read and write, 1 that of an NVIDIA GPU.
        stream: of a GPU's tensor: a CUstream; 0 is the default stream of the thread's context.
    """

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("memory", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
    )

    def __init__(self, data: int = 0, num_bytes: int = 0, memory: int = 0, stream: int = 0):
        """Describes memory; it holds nothing of it."""
        super().__init__(data, num_bytes, memory, 0, stream)


class Request(ctypes.Structure):
    """One tensor's part in a collective of a communicator's members, on this rank: smddp_request.

    The memory of the buffers is the engine's from `submit`, `run` or `Operation` on, until the request has
    ended. The caller keeps it alive. A request may be used again when it has ended.

    The members must agree in all but addresses, rooms, `label`, `timeout`, the rows of an allgather and an
    all-to-all, and `splits`. The n-th request of a communicator on one rank meets the n-th one on each other
    rank. With `ticket`, requests meet by their index in a group instead, and may be submitted in any order.
    """

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("communicator", ctypes.c_uint32),
        ("collective", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("compression", ctypes.c_int32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("num_dims", ctypes.c_int32),
        ("num_splits", ctypes.c_int32),
        ("splits", ctypes.POINTER(ctypes.c_int64)),
        ("input", Buffer),
        ("output", Buffer),
        ("rows", ctypes.POINTER(ctypes.c_int64)),
        ("allocate", ctypes.c_void_p),
        ("allocate_context", ctypes.c_void_p),
        ("ticket", ctypes.c_uint64),
        ("group_index", ctypes.c_uint32),
        ("group_size", ctypes.c_uint32),
        ("label", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("timeout", ctypes.c_double),
    )

    def __init__(
        self,
        collective: Collective,
        dtype: DType = DType.FLOAT16,
        shape: Sequence[int] = (),
        *,
        op: ReduceOp = ReduceOp.SUM,
        root: int = 0,
        communicator: int = WORLD,
        input: Optional[Buffer] = None,
        output: Optional[Buffer] = None,
        splits: Sequence[int] = (),
        num_rows: int = 0,
        ticket: Optional[Tuple[int, int, int]] = None,
        label: str = "",
        name: str = "",
        timeout: float = 0,
    ):
        """Describes a request. Fields that are no arguments here (such as factors) can be set afterwards.

        Args:
            collective: what is done.
            dtype: of the elements; a barrier has none.
            shape: the dimensions of the input, in elements; () is a single element, and a barrier's.
            op: of a reduction.
            root: of a broadcast, the rank of the job whose tensor all get.
            communicator: the ranks that take part.
            input: where it is read. None is `output`, for an allreduce or a broadcast in place.
            output: where the result is written.
            splits: of an all-to-all, the rows for each member.
            num_rows: the number of members, if `rows` is to have the rows from each when the request has
                ended; 0 otherwise.
            ticket: of a group, what `draw_ticket` has returned, the request's index in the group, and the
                number of requests in it.
            label: the tensor's name for messages.
            name: the tensor's name, which is compared: those of different names are an error.
            timeout: in seconds. If the request has waited so long for other ranks, the job ends with an error
                that names them. 0 is SMDDP_STALL_TIMEOUT, for which ranks count as late only while they make
                no progress. It has no effect if SMDDP_STALL_WARNING and SMDDP_STALL_TIMEOUT are both 0.
        """
        super().__init__()
        engine().smddp_request_init(ctypes.byref(self), ctypes.sizeof(self))
        self.communicator, self.collective, self.root = communicator, collective, root
        self.dtype, self.op = dtype, _NUMBERS[op]
        self.shape, self.num_dims = (ctypes.c_int64 * len(shape))(*shape), len(shape)
        if splits:
            self.splits, self.num_splits = (ctypes.c_int64 * len(splits))(*splits), len(splits)
        if input is not None:
            self.input = input
        if output is not None:
            self.output = output
        if num_rows:
            self.rows = (ctypes.c_int64 * num_rows)()
        if ticket is not None:
            self.ticket, self.group_index, self.group_size = ticket
        self.label, self.name = label.encode() or None, name.encode() or None
        self.timeout = timeout

    def submit(self, done: Callable[[Optional[RuntimeError]], None]) -> None:
        """Submits the request, and does not wait for it.

        Args:
            done: called once when the request has ended, with None, or with the error; perhaps before this
                returns. A thread of the engine's calls it, or one that is in `submit`, `run` or `wait`. It
                holds up other callbacks: it must return quickly, and must not wait for a request. An
                exception in it is printed, and goes no further.

        Raises:
            RuntimeError: the request was not submitted, and `done` is not called: not initialized, or the
                request is wrong. The other ranks know nothing of it: see `fail`.
        """
        number = next(_counter)
        _pending[number] = (self, done)
        try:
            check(engine().smddp_submit(ctypes.byref(self), _when_done, number))
        except BaseException:
            _pending.pop(number, None)
            raise

    def run(self) -> None:
        """Submits the request, and waits for its end: the fastest way for one that is alone.

        Raises:
            RuntimeError: not initialized, the request is wrong, the ranks disagree, or one is gone.
            KeyboardInterrupt: by Ctrl-C, where `init` was called in the main thread; the request has failed
                on all ranks.
        """
        check(engine().smddp_run(ctypes.byref(self)))


class Operation:
    """Requests of one communicator that were started together: all of them, or none.

    When nothing refers to an operation, its requests go on, and use their buffers.
    """

    def __init__(self, requests: Sequence[Request]):
        """Submits the requests in their order, and does not wait for them. Raises as `Request.submit`."""
        self.requests, self._handle = requests, ctypes.c_void_p()
        addresses = (ctypes.c_void_p * len(requests))(*map(ctypes.addressof, requests))
        check(engine().smddp_start(addresses, len(requests), ctypes.byref(self._handle)))
        _at_the_end_of(self, engine().smddp_release, self._handle)

    def test(self) -> bool:
        """Returns whether all requests have ended. Does not wait."""
        return bool(engine().smddp_test(self._handle))

    def wait(self) -> None:
        """Waits for the end of all requests; this thread does their work meanwhile. Any number of times.

        Raises:
            RuntimeError: a request has failed; the text is the first error's.
        """
        check(engine().smddp_wait(self._handle))


def _at_the_end_of(owner: Any, free: Callable[[Any], Any], handle: Any) -> None:
    """Frees something when nothing refers to its owner any more; not at the end of the process."""
    weakref.finalize(owner, free, handle).atexit = False  # type: ignore[misc]


_Done = Callable[[Optional[RuntimeError]], None]
# Requests that were submitted and have not ended, by the number that the engine hands back.
_pending: Dict[int, Tuple[Request, _Done]] = {}
_counter = itertools.count(1)


@DONE
def _when_done(number: int, result: int, text: bytes) -> None:
    _, done = _pending[number]
    try:
        done(None if result == 0 else RuntimeError(text_of(text)))
    finally:
        del _pending[number]


def wait_for_callbacks(seconds: float) -> None:
    """Waits until all callbacks have returned, for at most so long; for the end of the process.

    A thread of the engine's that comes to Python after its end would end the process in another way.
    """
    deadline = time.monotonic() + seconds
    while _pending and time.monotonic() < deadline:
        time.sleep(0.01)


def barrier(communicator: int = WORLD) -> None:
    """Waits until all members have called this. Collective of the communicator; raises as `Request.run`."""
    Request(Collective.BARRIER, communicator=communicator).run()


def allreduce(
    array: Any, op: ReduceOp = ReduceOp.SUM, communicator: int = WORLD, label: str = "", name: str = ""
) -> None:
    """Replaces the content of a NumPy array, or another buffer, by the reduction of all members'.

    Collective of the communicator, with arrays of the same shape and type.

    Args:
        array: what memoryview() takes: contiguous, and not read-only.
        op: how elements are combined.
        communicator: the ranks that take part.
        label: a name for messages.
        name: a name that is compared.

    Raises:
        TypeError, ValueError: the array is not contiguous, is read-only, or is of a type that the engine does
            not have.
        RuntimeError, KeyboardInterrupt: as `Request.run`.
    """
    _in_place(Collective.ALLREDUCE, array, op=op, communicator=communicator, label=label, name=name)


def broadcast(array: Any, root: int, communicator: int = WORLD, label: str = "", name: str = "") -> None:
    """Replaces the content of a NumPy array, or another buffer, by that of the rank `root` of the job.

    Collective of the communicator; arguments and errors as those of `allreduce`.
    """
    _in_place(Collective.BROADCAST, array, root=root, communicator=communicator, label=label, name=name)


def _in_place(collective: Collective, array: Any, **arguments: Any) -> None:
    view = memoryview(array)
    if not view.c_contiguous or view.format not in _FORMATS:
        raise TypeError(
            f"{collective.name.lower()}() takes a contiguous array with numbers of one of the engine's "
            f"types, but got one of the format {view.format!r} with the strides {view.strides}"
        )
    memory = (ctypes.c_char * view.nbytes).from_buffer(array)
    output = Buffer(ctypes.addressof(memory), view.nbytes)
    Request(collective, _FORMATS[view.format], view.shape or (), output=output, **arguments).run()


def allocate(num_bytes: int) -> Any:
    """Returns memory in this rank's *arena*, which the ranks of a host share: no request copies it.

    Where there is no arena (one rank, a forked child, outside of a job) or no room in it, the memory is
    private. `numpy.frombuffer` and `torch.frombuffer` make arrays of it.

    Returns:
        An array of ctypes with that many bytes, not set, aligned to 256. The memory is freed when nothing
        refers to the array any more; it must be no part of a request then.

    Raises:
        MemoryError: the system has none.
    """
    address = engine().smddp_allocate(num_bytes)
    if not address:
        raise MemoryError(f"the system has no {num_bytes} bytes")
    array = (ctypes.c_char * num_bytes).from_address(address)
    _at_the_end_of(array, engine().smddp_free, address)
    return array


def is_in_arena(address: int) -> bool:
    """Returns whether an address lies in an arena of this process."""
    return bool(engine().smddp_is_in_arena(address))
