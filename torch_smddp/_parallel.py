"""DistributedDataParallel of our own: each gradient is a request, and the engine combines small ones."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from smddp import Collective, Operation, ReduceOp, Request, communicators, draw_ticket
from torch_smddp._process_group import ProcessGroupSmddp
from torch_smddp._tensors import DTYPES, as_bytes, buffer_of


class DistributedDataParallel(torch.nn.Module):
    """Trains copies of a module on all ranks, as torch.nn.parallel.DistributedDataParallel does.

    Each gradient is averaged over the ranks as soon as the backward pass has made it, beside the rest of that
    pass. The pass ends when all gradients are averages. The engine packs small ones; there are no buckets.

    At the construction all ranks must have parameters and buffers of the same names, shapes and dtypes. Their
    values become those of the group's first rank.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Optional[Sequence[Any]] = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Optional[ProcessGroupSmddp] = None,
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ):
        """Wraps a module. Collective of the group's members.

        Args:
            module: its parameters are on one device.
            device_ids: None, or the one device to which inputs are moved.
            output_device: where the output is; the device of the module.
            dim: ignored, as torch does with one device.
            broadcast_buffers: whether each forward pass begins with the buffers of the group's first rank.
            init_sync: whether the ranks compare and equalize the module now.
            process_group: a group of the backend smddp; None: that of all ranks.
            bucket_cap_mb: ignored, since there are no buckets; SMDDP_BUCKET_CAP_BYTES bounds what is packed.
            find_unused_parameters: look at each output for parameters that it does not depend on; they
                count as zeros. A parameter that no rank has used keeps its gradient.
            check_reduction: ignored, as torch does.
            gradient_as_bucket_view: ignored: gradients are reduced where they lie.
            static_graph: each backward pass makes the gradients of the first one, some of them in several
                parts, as with reentrant checkpoints.

        Raises:
            RuntimeError: no process group of the backend smddp, or the ranks have different modules (the text
                has both sides).
            ValueError: no parameter has requires_grad, or there are several devices.
        """
        super().__init__()
        group = dist.group.WORLD if process_group is None else process_group
        if not isinstance(group, ProcessGroupSmddp):
            raise RuntimeError(
                "torch_smddp.DistributedDataParallel needs a process group of the backend smddp, but got "
                f"{group!r}. Call torch.distributed.init_process_group(backend='smddp') first"
            )
        self.module, self.process_group, self.dim = module, group, dim
        self.device_ids = None if not device_ids else list(device_ids)
        self.output_device = output_device
        self.broadcast_buffers, self.static_graph = broadcast_buffers, static_graph
        self.find_unused_parameters = find_unused_parameters and not static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = True
        self._names = [name for name, each in module.named_parameters() if each.requires_grad]
        self._trained = [each for each in module.parameters() if each.requires_grad]
        if not self._trained:
            raise ValueError("DistributedDataParallel: no parameter of the module has requires_grad=True")
        devices = {each.device for each in module.parameters()}
        if len(devices) > 1 or len(self.device_ids or [0]) > 1:
            raise ValueError(
                f"DistributedDataParallel takes a module on one device, but its parameters are on "
                f"{sorted(map(str, devices))} and device_ids is {device_ids}; start one rank for each device"
            )
        self.device = devices.pop()
        embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        sparse = {
            id(each.weight) for each in module.modules() if isinstance(each, embeddings) and each.sparse
        }
        self._dense = [i for i, each in enumerate(self._trained) if id(each) not in sparse]
        self._places = {index: place for place, index in enumerate(self._dense)}  # in the group of requests
        if init_sync:
            self._compare()
            self._broadcast([*module.parameters(), *module.buffers()])
        count = len(self._trained)
        self._armed = self._sync_buffers = False
        self._join_divisor: Optional[int] = None  # in join(); 0 is the number of ranks that still train
        self._step = _Step(count)
        self._unused: Set[int] = set()  # parameters that the output does not depend on
        self._ever_used = [True] * count
        self._times = [-1] * count  # of a static graph: how often each gradient comes; -1 is not known yet
        for index, each in enumerate(self._trained):
            each.register_post_accumulate_grad_hook(functools.partial(self._on_gradient, index))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module."""
        self._before_forward()
        if self.device_ids:
            inputs, kwargs = tree_map(self._moved, (inputs, kwargs))
        return self._after_forward(self.module(*inputs, **kwargs))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes in here stay on this rank, and add up until one outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """For ranks with different numbers of batches: those without more leave the collectives of the rest.

        At the end all ranks have the parameters and buffers of the one that was last. In here, forward passes
        do not broadcast buffers.

        Args:
            divide_by_initial_world_size: gradients are sums divided by the number of all ranks; else by that
                of those which still train.
            enable: False does nothing.
            throw_on_early_termination: is refused.

        Raises:
            NotImplementedError: `throw_on_early_termination`.
        """
        if throw_on_early_termination:
            raise NotImplementedError(
                "DistributedDataParallel.join(throw_on_early_termination=True) is not there; let torch's "
                'DistributedDataParallel over the backend "smddp" do it'
            )
        if not enable:
            yield
            return
        group = self.process_group
        self._join_divisor = group.size() if divide_by_initial_world_size else 0
        try:
            yield
            last = communicators.leave_and_return([group.communicator])
        finally:
            self._join_divisor = None
        self._broadcast([*self.module.parameters(), *self.module.buffers()], root=last)

    def register_comm_hook(self, state: Any, hook: Any) -> NoReturn:
        """Is refused: hooks work on buckets.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "torch_smddp.DistributedDataParallel has no buckets, and so no register_comm_hook(); use "
            'torch.nn.parallel.DistributedDataParallel over the backend "smddp"'
        )

    # ---- Before and after the forward pass ----

    @torch._disable_dynamo
    def _before_forward(self) -> None:
        if self._step.gradients:
            missing = [name for i, name in enumerate(self._names) if i not in self._step.gradients]
            self._fail(
                f"the last backward pass has made no gradient for {', '.join(missing[:10])}"
                f"{', …' if len(missing) > 10 else ''}, so the step is not whole. The loss must use all "
                "parameters, or give DistributedDataParallel(find_unused_parameters=True)"
            )
        if self.broadcast_buffers and self._sync_buffers and self._join_divisor is None:
            self._broadcast(list(self.module.buffers()))

    @torch._disable_dynamo
    def _after_forward(self, output: Any) -> Any:
        self._armed = self._sync_buffers = torch.is_grad_enabled() and self.require_backward_grad_sync
        if not self._armed:
            return output
        if self.find_unused_parameters:
            used = _parameters_under(output)
            self._unused = {i for i, each in enumerate(self._trained) if id(each) not in used}
        if self.static_graph and self._times[0] < 0:
            leaves, structure = tree_flatten(output)
            at = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.requires_grad]
            for i, each in zip(at, _Sink.apply(self._learn, *(leaves[i] for i in at))):
                leaves[i] = each
            return tree_unflatten(leaves, structure)
        return output

    def _moved(self, value: Any) -> Any:
        return value.to(self.device, non_blocking=True) if isinstance(value, torch.Tensor) else value

    # ---- In the backward pass ----

    def _on_gradient(self, index: int, parameter: torch.Tensor) -> None:
        """Called when a gradient has been added to parameter.grad."""
        if not self._armed:
            return
        step = self._step
        step.times[index] += 1
        if self.static_graph:
            # In the first pass, _learn takes all gradients at its end.
            if step.times[index] == self._times[index]:
                self._take(index)
            return
        if index in step.gradients:
            self._fail(
                f"the gradient of {self._names[index]} came twice in one backward pass, as when several "
                "reentrant checkpoints use it, or several losses of one forward pass do. Use "
                "checkpoint(use_reentrant=False), add the losses, or give "
                "DistributedDataParallel(static_graph=True)"
            )
        self._take(index)

    def _take(self, index: int) -> None:
        """Starts the reduction of a gradient that is whole now."""
        step, group = self._step, self.process_group
        if step.ticket is None:
            step.ticket = draw_ticket(group.communicator)
            if self.find_unused_parameters:
                used = [i not in self._unused for i in range(len(self._names))]
                step.used = torch.tensor(used, device=self.device)
                self._start(len(self._dense), "used parameters", step.used, ReduceOp.MAX)
            for each in sorted(self._unused):
                self._take(each)
        parameter = self._trained[index]
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if index not in self._places:
            step.gradients[index] = gradient
        else:
            if gradient.layout != torch.strided:
                self._fail(
                    f"the gradient of {self._names[index]} has the layout {gradient.layout}, but is of no "
                    "embedding with sparse=True; make it dense"
                )
            # The order in memory is that of the parameter, which is the same on all ranks.
            if gradient.stride() != parameter.stride() or not _is_dense(gradient):
                gradient = torch.empty_like(parameter).copy_(gradient)
            step.gradients[index] = gradient
            flat = gradient.as_strided((gradient.numel(),), (1,))
            divisor = self._join_divisor
            op = ReduceOp.SUM if divisor else ReduceOp.AVERAGE
            self._start(self._places[index], self._names[index], flat, op, 1.0 / (divisor or 1))
        if len(step.gradients) == len(self._names):
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _start(self, place: int, name: str, flat: torch.Tensor, op: ReduceOp, postscale: float = 1.0) -> None:
        step = self._step
        assert step.ticket is not None
        request = Request(
            Collective.ALLREDUCE,
            DTYPES[flat.dtype],
            flat.shape,
            op=op,
            communicator=self.process_group.communicator,
            output=buffer_of(flat),
            ticket=(step.ticket, place, len(self._dense) + self.find_unused_parameters),
            label=name,
        )
        request.postscale = postscale
        step.operations.append(request.start())

    def _finish(self) -> None:
        """Waits for the reductions; at the end of the backward pass in which the last gradient came."""
        step, self._step = self._step, _Step(len(self._names))
        _wait(step.operations)
        used = self._ever_used if step.used is None else step.used.tolist()
        for index, gradient in sorted(step.gradients.items()):
            parameter = self._trained[index]
            if not used[index]:
                continue
            if index not in self._places:
                self._reduce_sparse(gradient)
            if parameter.grad is None:
                parameter.grad = gradient
            elif parameter.grad is not gradient:
                parameter.grad.copy_(gradient)

    def _reduce_sparse(self, gradient: torch.Tensor) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG if self._join_divisor is None else dist.ReduceOp.SUM
        self.process_group.allreduce([gradient], options).wait()

    def _learn(self) -> None:
        """At the end of the first backward pass of a static graph: notes how often each gradient came."""
        times, group = self._step.times, self.process_group
        ever = torch.tensor(times, device=self.device)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group.allreduce([ever], options).wait()
        self._ever_used = [each > 0 for each in ever.tolist()]
        self._unused = {i for i, each in enumerate(times) if each == 0}
        self._times = times
        for index, each in enumerate(times):
            if each:
                self._take(index)

    def _fail(self, text: str) -> NoReturn:
        """Ends the step on all ranks with an error."""
        step, self._step = self._step, _Step(len(self._names))
        if not all(each.test() for each in step.operations):  # else another rank has ended the step
            communicators.fail(self.process_group.communicator, text)
        with contextlib.suppress(RuntimeError):  # that error
            _wait(step.operations)
        raise RuntimeError(f"DistributedDataParallel: {text}")

    # ---- At the construction ----

    def _compare(self) -> None:
        """Raises an error with both sides if the ranks have different modules."""
        own = [
            (kind, name, tuple(each.shape), str(each.dtype), each.stride(), each.requires_grad)
            for kind, all_of_kind in (
                ("parameter", self.module.named_parameters()),
                ("buffer", self.module.named_buffers()),
            )
            for name, each in all_of_kind
        ]
        everyone: List[Any] = [None] * self.process_group.size()
        dist.all_gather_object(everyone, own, group=self.process_group)
        for other, theirs in zip(self.process_group.ranks, everyone):
            for a, b in itertools.zip_longest(everyone[0], theirs):
                if a != b:
                    raise RuntimeError(
                        "DistributedDataParallel: the ranks have different modules: rank "
                        f"{self.process_group.ranks[0]} has {_described(a)}, and rank {other} has "
                        f"{_described(b)}. Build the same module on all ranks"
                    )

    def _broadcast(self, tensors: Sequence[torch.Tensor], root: Optional[int] = None) -> None:
        """Replaces the tensors by those of the rank `root` of the job; None: the group's first one."""
        group = self.process_group
        tensors = [each.detach() for each in tensors]
        contents = [as_bytes(each) for each in tensors]
        if not contents:
            return
        ticket = draw_ticket(group.communicator)
        operations = [
            Request(
                Collective.BROADCAST,
                DTYPES[each.dtype],
                (each.numel(),),
                root=group.ranks[0] if root is None else root,
                communicator=group.communicator,
                output=buffer_of(each),
                ticket=(ticket, i, len(contents)),
            ).start()
            for i, each in enumerate(contents)
        ]
        _wait(operations)
        for tensor, content in zip(tensors, contents):
            if tensor.data_ptr() != content.data_ptr():
                tensor.copy_(content.view(tensor.dtype).view(tensor.shape))


class _Step:
    """What one backward pass, or several of one forward pass, have brought so far."""

    def __init__(self, num_parameters: int):
        self.times = [0] * num_parameters  # how often each gradient came
        self.ticket: Optional[int] = None  # of the group of requests
        self.gradients: Dict[int, torch.Tensor] = {}  # that are being reduced
        self.operations: List[Operation] = []
        self.used: Optional[torch.Tensor] = None  # whether a rank has used each parameter


class _Sink(torch.autograd.Function):
    """Calls a function at the end of a backward pass, and passes tensors and gradients on."""

    @staticmethod
    def forward(ctx: Any, at_end: Any, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Returns the tensors."""
        ctx.set_materialize_grads(False)
        ctx.at_end = at_end
        return tuple(each.view_as(each) for each in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Returns the gradients."""
        # This is the first node of the pass, so the callback is not of a reentrant checkpoint in it.
        torch.autograd.Variable._execution_engine.queue_callback(ctx.at_end)
        return (None, *gradients)


def _wait(operations: Sequence[Operation]) -> None:
    """Waits for the end of all, since they use memory; raises the first error."""
    first = None
    for each in operations:
        try:
            each.wait()
        except RuntimeError as error:
            first = first or error
    if first is not None:
        raise dist.DistBackendError(str(first))


def _is_dense(tensor: torch.Tensor) -> bool:
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


def _described(entry: Any) -> str:
    if entry is None:
        return "no more"
    kind, name, shape, dtype, strides, trained = entry
    return f"the {kind} {name}: {shape} of {dtype}, strides {strides}, requires_grad={trained}"


def _leaves(value: Any) -> List[torch.Tensor]:
    """Returns the tensors in a module's output."""
    found: List[torch.Tensor] = []
    for each in tree_leaves(value):
        if isinstance(each, torch.Tensor):
            found.append(each)
        elif dataclasses.is_dataclass(each):
            found += [t for field in dataclasses.fields(each) for t in _leaves(getattr(each, field.name))]
    return found


def _parameters_under(output: Any) -> Set[int]:
    """Returns the ids of the parameters that an output depends on."""
    tensors = _leaves(output)
    found = {id(each) for each in tensors if each.grad_fn is None}
    stack = [each.grad_fn for each in tensors if each.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                stack.append(below)
    return found
