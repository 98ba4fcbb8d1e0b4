"""The gradients of a module: a request for each, which the engine combines and overlaps.

Each gradient is handed to the engine when autograd has accumulated it, or with the next ones if it is small,
and is averaged where it lies: nothing is packed, and nothing is copied. Autograd calls back at the end of the
backward pass, and waits there. There are no buckets: the engine reduces small gradients together.

The gradients of one backward pass are a *group* (smddp.h): the k-th group of one rank meets the k-th one of
the others, and in it the gradients meet by the number of their parameter, in whichever order they come. Their
requests also have names, so that two models which train in another order on some ranks are an error.

Autograd calls our hooks also in a backward pass within a function that torch.compile() has compiled. Dynamo
then would compile the hooks, too, and cannot look into the engine, so they are marked with _disable_dynamo.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from typing import Any, Dict, Iterable, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch.utils.weak import WeakIdKeyDictionary

from smddp import Collective, Operation, ReduceOp, Request, communicators, draw_ticket
from torch_smddp._memory import InArena, arena_switch, is_alone
from torch_smddp._module_state import strides_of
from torch_smddp._process_group import ProcessGroupSmddp
from torch_smddp._tensors import DTYPES, locate

# A call of the engine costs as much as the reduction of a small gradient: so many bytes share one.
_BYTES_OF_A_CALL = 1 << 18

# The reducer of each parameter, and what removes its hook.
_owners: Any = WeakIdKeyDictionary()


class _Slot(NamedTuple):
    """A parameter whose gradient is reduced."""

    name: str
    parameter: torch.Tensor
    strides: Tuple[int, ...]  # of its gradient on all ranks
    is_sparse: bool  # whether its gradient is
    request: Request  # used again in each backward pass


class _Pass:
    """The gradients of a backward pass, while they are reduced."""

    def __init__(self) -> None:
        self.ticket: Optional[int] = None  # of the group, from the first gradient on
        self.counts: Dict[int, int] = {}  # how often autograd has accumulated each gradient
        self.submitted: Set[int] = set()  # the numbers of the parameters, waiting ones included
        self.waiting: List[Request] = []  # for the next call
        self.waiting_bytes = 0
        self.operations: List[Operation] = []
        # What the engine reads and writes there, if it is not the gradient itself.
        self.copies: Dict[int, torch.Tensor] = {}
        self.kept: List[torch.Tensor] = []  # memory that the engine uses
        self.tasks: Set[int] = set()  # the runs of autograd that call back
        self.is_whole = False  # whether one of them is the outermost: others are parts of it


class _EndOfRun:
    """Is called by autograd when a run of it has ended; an error frees it without a call."""

    def __init__(self, reducer: Reducer, of: _Pass):
        self._reducer: Optional[Reducer] = reducer
        self._pass = of

    @torch._disable_dynamo
    def __call__(self) -> None:
        reducer, self._reducer = self._reducer, None
        if reducer is not None:
            reducer.end(self._pass)

    def __del__(self) -> None:
        if self._reducer is not None:
            self._reducer.give_up(self._pass, "an exception has ended its backward pass")


class Reducer:
    """Averages the gradients of a module's parameters over the members of a process group.

    Attributes:
        is_active: whether gradients that come are reduced; else they stay this rank's own (no_sync).
        finds_unused: whether parameters without a gradient are allowed.
        is_static: whether each backward pass accumulates each gradient as often as the first one.
        was_replaced: whether another wrapper reduces the gradients now.
    """

    def __init__(
        self,
        group: ProcessGroupSmddp,
        parameters: Sequence[Tuple[str, torch.Tensor]],
        sparse: Set[int],
        label: str,
        finds_unused: bool,
        is_static: bool,
    ):
        """Has autograd call it for each gradient; that ends when nothing refers to it any more.

        Args:
            group: of the ranks.
            parameters: with their names; all of them require gradients.
            sparse: the ids of those whose gradients are sparse.
            label: the name of the module, the same on all ranks.
            finds_unused: see above.
            is_static: see above.
        """
        self._group, self._lock = group, threading.RLock()
        self.is_active, self.was_replaced = True, False
        self.finds_unused, self.is_static = finds_unused, is_static
        shares = group.size() > 1 and any(each.is_cpu for _, each in parameters)
        self._arena_switch = arena_switch() if shares else None
        self._pass: Optional[_Pass] = None
        self._used: Set[int] = set()  # parameters with a gradient since the last reduction
        self._expected: Optional[Dict[int, int]] = None  # is_static: the counts of the first pass
        self._slots = [
            _Slot(
                name, each, strides_of(each), id(each) in sparse, self._request(each, f"{label}: {name}", i)
            )
            for i, (name, each) in enumerate(parameters)
        ]
        self._flags = self._request(torch.empty(len(parameters), dtype=torch.bool), label, len(parameters))
        self._flags.op = Request(Collective.ALLREDUCE, op=ReduceOp.MAX).op
        handles = [self._watch(index, slot) for index, slot in enumerate(self._slots)]
        weakref.finalize(self, _remove, handles).atexit = False  # type: ignore[misc]

    def _request(self, tensor: torch.Tensor, name: str, index: int) -> Request:
        return Request(
            Collective.ALLREDUCE,
            DTYPES[tensor.dtype],
            tensor.shape,
            op=ReduceOp.AVERAGE,
            communicator=self._group.communicator,
            ticket=(0, index, 0),
            name=name,
            timeout=self._group.timeout,
        )

    def _watch(self, index: int, slot: _Slot) -> Any:
        owner, handle = _owners.get(slot.parameter, (lambda: None, None))
        if handle is not None:
            handle.remove()
        if owner() is not None:
            owner().was_replaced = True
        here = weakref.ref(self)

        @torch._disable_dynamo
        def arrived(_: torch.Tensor) -> None:
            reducer = here()
            if reducer is not None:
                reducer._arrived(index)

        handle = slot.parameter.register_post_accumulate_grad_hook(arrived)
        _owners[slot.parameter] = here, handle
        return handle

    @property
    def has_sparse(self) -> bool:
        """Whether a gradient is sparse."""
        return any(slot.is_sparse for slot in self._slots)

    def divide_by(self, size: Optional[int]) -> None:
        """Divides sums by `size` from now on; None: by the number of ranks that take part."""
        op = ReduceOp.AVERAGE if size is None else ReduceOp.SUM
        for slot in self._slots:
            slot.request.op = Request(Collective.ALLREDUCE, op=op).op
            slot.request.postscale = 1 / (size or 1)

    # ---- During the backward pass ----

    @torch._disable_dynamo
    def begin(self, _: torch.Tensor) -> None:
        """Is called by autograd when it comes to the module, in the outermost of its runs."""
        if self._arena_switch is not None:
            torch.autograd.Variable._execution_engine.queue_callback(InArena(self._arena_switch))
        with self._lock:
            if not self.is_active or not self._allows_unused:
                return
            self._pass = self._pass or _Pass()
            if not self._pass.is_whole:
                self._pass.is_whole = True
                self._call_back(self._pass)

    def _call_back(self, of: _Pass) -> None:
        # At the top of the file it would take seconds. Here _disable_dynamo has imported it.
        from torch._dynamo import compiled_autograd

        if compiled_autograd.in_compiled_autograd_region:
            self._fail(
                of,
                "DistributedDataParallel does not support compiled autograd, which does not tell when a "
                "backward pass has ended; leave torch._dynamo.config.compiled_autograd off. torch.compile() "
                "compiles backward passes without it",
            )
        of.tasks.add(torch._C._current_graph_task_id())
        torch.autograd.Variable._execution_engine.queue_callback(_EndOfRun(self, of))

    def _arrived(self, index: int) -> None:
        with self._lock:
            self._used.add(index)
            if not self.is_active:
                return
            now = self._pass = self._pass or _Pass()
            if not now.is_whole and torch._C._current_graph_task_id() not in now.tasks:
                self._call_back(now)
            if now.ticket is None:
                now.ticket = self._draw()
            count = now.counts[index] = now.counts.get(index, 0) + 1
            if self.is_static and self._expected is None:
                return
            expected = (self._expected or {}).get(index, 1)
            if count > expected:
                self._fail(now, self._text_of_second(index, expected))
            if count == expected:
                self._submit(now, index)

    def _submit(self, now: _Pass, index: int) -> None:
        """Submits the gradient of a parameter, which counts as zeros if there is none."""
        slot = self._slots[index]
        gradient = slot.parameter.grad
        if slot.is_sparse:
            return  # at the end
        if gradient is not None and gradient.requires_grad:
            warnings.warn(
                "DistributedDataParallel averages the values of gradients, but with create_graph=True their "
                "own derivatives remain those of this rank",
                stacklevel=2,
            )
        if gradient is not None and gradient.layout != torch.strided:
            self._fail(
                now,
                f"the gradient of the parameter {slot.name!r} has the layout {gradient.layout}, which is "
                "supported for those of Embedding(sparse=True) and EmbeddingBag(sparse=True) only; use "
                "dense gradients",
            )
        if gradient is None:
            memory = now.copies[index] = torch.zeros_like(slot.parameter, requires_grad=False)
        elif index in now.counts and gradient.stride() == slot.strides and is_alone(gradient):
            memory = gradient
        else:
            memory = torch.empty_like(slot.parameter, dtype=gradient.dtype, requires_grad=False)
            with torch.no_grad():
                memory.copy_(gradient)
            now.copies[index] = memory
        self._start(now, index, slot.request, memory)

    def _draw(self) -> int:
        try:
            return draw_ticket(self._group.communicator)
        except RuntimeError as error:
            raise dist.DistBackendError(str(error)) from None

    def _start(self, now: _Pass, index: int, request: Request, memory: torch.Tensor) -> None:
        request.ticket, request.group_size = now.ticket or 0, len(self._slots) + self._allows_unused
        request.dtype = DTYPES[memory.dtype]
        locate(memory, request.output)
        now.submitted.add(index)
        now.kept.append(memory)
        now.waiting.append(request)
        now.waiting_bytes += memory.nbytes
        if now.waiting_bytes >= _BYTES_OF_A_CALL:
            self._flush(now)

    def _flush(self, now: _Pass) -> None:
        requests, now.waiting, now.waiting_bytes = now.waiting, [], 0
        try:
            now.operations.append(Operation(requests))
        except RuntimeError as error:
            raise dist.DistBackendError(str(error)) from None

    @property
    def _allows_unused(self) -> bool:
        return self.finds_unused or self.is_static

    def _text_of_second(self, index: int, expected: int) -> str:
        name = self._slots[index].name
        if self.is_static:
            return (
                f"the parameter {name!r} got its gradient {expected} times in the first backward pass, and "
                "more often now. Leave static_graph=True out where the graph changes"
            )
        return (
            f"the parameter {name!r} got its gradient twice, and the first one is being reduced. If it is "
            "used in several parts under torch.utils.checkpoint, use checkpoint(..., use_reentrant=False) or "
            "static_graph=True. If there are two backward passes, of which each reaches a part of the "
            "parameters, add the losses"
        )

    def _fail(self, now: _Pass, text: str) -> NoReturn:
        self.give_up(now, text)
        raise RuntimeError(text)

    # ---- The end of the backward pass ----

    def end(self, now: _Pass) -> None:
        """Waits for the gradients of a pass, if all have come."""
        with self._lock:
            if self._pass is not now:
                return  # it ended with an inner run
            if not now.counts:
                self._pass = None  # torch.autograd.grad
                return
            if not self._allows_unused and len(now.counts) < len(self._slots):
                return  # another backward pass may bring the others; else the next forward pass complains
        try:
            used = self._submit_rest(now) if self._allows_unused else None
            self._flush(now)
            _wait(now.operations)
        except BaseException:
            self.give_up(now, "its backward pass was interrupted")
            raise
        with torch.no_grad():
            self._put_back(now, used)
        if self.is_static:
            self._expected = self._expected or now.counts
        self._used.clear()
        self._pass = None

    def _submit_rest(self, now: _Pass) -> torch.Tensor:
        for index in range(len(self._slots)):
            if index not in now.submitted:
                self._submit(now, index)
        used = torch.zeros(len(self._slots), dtype=torch.bool)
        used[list(self._used)] = True
        self._start(now, len(self._slots), self._flags, used)
        return used

    def _put_back(self, now: _Pass, used: Optional[torch.Tensor]) -> None:
        """Gives parameters the results that are not in their gradients yet, where any rank has used them."""
        is_used = [True] * len(self._slots) if used is None else used.tolist()
        for index, memory in now.copies.items():
            parameter = self._slots[index].parameter
            if is_used[index] and parameter.grad is None:
                parameter.grad = memory
            elif is_used[index]:
                parameter.grad.copy_(memory)
        for index, slot in enumerate(self._slots):
            if slot.is_sparse and is_used[index]:
                _reduce_sparse(slot.parameter, self._group)

    def give_up(self, now: _Pass, reason: str) -> None:
        """Tells the other ranks that this one has no more gradients, unless one of them has failed."""
        with self._lock:
            if self._pass is not now:
                return
            self._pass = None
            self._used.clear()
        if now.ticket is not None:
            communicators.fail(self._group.communicator, reason, now.ticket)
        with contextlib.suppress(dist.DistBackendError):
            _wait(now.operations)  # the engine uses the memory until then

    def check_all_came(self) -> None:
        """Raises an error if the last backward pass has not brought all gradients.

        Raises:
            RuntimeError: the text names the parameters. It is an error on all ranks.
        """
        now = self._pass
        if now is None:
            return
        names = [slot.name for index, slot in enumerate(self._slots) if index not in now.counts]
        self._fail(
            now,
            f"{len(names)} of {len(self._slots)} parameters got no gradient in the last backward pass on "
            f"rank {self._group.ranks[self._group.rank()]}: {_enumerate(names)}. Either all of them must be "
            "used for the loss, or give DistributedDataParallel find_unused_parameters=True. Perhaps an "
            "output of forward() is not used for the loss, or parameters were frozen after the module was "
            "wrapped",
        )


def _remove(handles: List[Any]) -> None:
    for each in handles:
        each.remove()


def _wait(operations: Iterable[Operation]) -> None:
    """Waits for the end of all, and then raises the first error."""
    error = None
    for each in operations:
        try:
            each.wait()
        except RuntimeError as failure:
            error = error or failure
    if error is not None:
        raise dist.DistBackendError(str(error)) from None


def _reduce_sparse(parameter: torch.Tensor, group: ProcessGroupSmddp) -> None:
    gradient = parameter.grad
    if gradient is None:
        indices = torch.empty(1, 0, dtype=torch.int64, device=parameter.device)
        own = torch.sparse_coo_tensor(indices, parameter.new_empty(0, *parameter.shape[1:]), parameter.shape)
    else:
        own = gradient if gradient.is_sparse else gradient.to_sparse(1)
    dist.all_reduce(own, dist.ReduceOp.AVG, group)
    if gradient is None or gradient.is_sparse:
        parameter.grad = own
    else:
        gradient.copy_(own.to_dense())


def _enumerate(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)
