"""DistributedDataParallel of our own, without buckets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from smddp import communicators
from torch_smddp._gradients import Reducer
from torch_smddp._module_state import broadcast, compare, describe
from torch_smddp._process_group import ProcessGroupSmddp
from torch_smddp._tensors import as_numbers, check_dense


class DistributedDataParallel(torch.nn.Module):
    """Trains a module on all ranks: the gradients of each backward pass are averaged over them.

        model = torch_smddp.DistributedDataParallel(model)
        loss = loss_function(model(images), labels)
        loss.backward()  # waits for the gradients' averages
        optimizer.step()

    It is used as torch.nn.parallel.DistributedDataParallel, and gives the same numbers. These are different:

    - There are no buckets: each gradient is reduced where it lies, as soon as it is there.
    - Each backward pass is reduced, also the second one after one forward pass (retain_graph).
    - An exception in the backward pass of one rank is an error on the others, which names the rank.

    Collective: all ranks of the process group make it, with equal modules, which then get the values of the
    group's first rank. They call it, and run backward passes, in the same order.

    Attributes:
        module: the module.
        process_group: of the ranks.
        device_ids, output_device: as given; None for modules on a CPU or on several devices.
        device: of the first parameter.
        broadcast_buffers, find_unused_parameters, gradient_as_bucket_view, static_graph, dim: as given.
        require_backward_grad_sync: whether the gradients of the next forward passes are averaged; see
            `no_sync`.
        parameters_to_ignore: the names of parameters and buffers that are left alone.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Optional[Sequence[Any]] = None,
        output_device: Any = None,
        *,
        dim: int = 0,
        broadcast_buffers: Optional[bool] = None,
        init_sync: bool = True,
        process_group: Optional[dist.ProcessGroup] = None,
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Optional[Sequence[Tuple[str, torch.Tensor]]] = None,
        param_to_hook_all_reduce: Optional[torch.Tensor] = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Optional[Sequence[float]] = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: Optional[bool] = None,
    ):
        """Compares the ranks' modules, and gives all the values of the group's first rank.

        Args:
            module: has at least one parameter that requires a gradient. It must not get or lose parameters
                afterwards, nor may frozen ones be made to require gradients.
            device_ids: None, or the one GPU on which the module is; inputs are moved there.
            output_device: None, or the same GPU.
            dim: is kept as an attribute.
            broadcast_buffers: whether the buffers of the group's first rank replace the others' here and
                before forward passes. None is True.
            init_sync: whether modules are compared, and values broadcast, here.
            process_group: of the backend "smddp"; None is the default group.
            bucket_cap_mb: has no effect: the engine combines gradients (SMDDP_BUCKET_CAP_BYTES is the limit).
            find_unused_parameters: whether a backward pass may leave parameters out. Those count as zeros
                on this rank; where all ranks leave one out, its gradient stays as it is.
            check_reduction: has no effect.
            gradient_as_bucket_view: has no effect: there are no buckets from which gradients are copied.
            static_graph: whether each backward pass is as the first one. Parameters may then be left out, or
                be used several times under checkpoint(..., use_reentrant=True).
            delay_all_reduce_named_params: has no effect on parameters of the module; others are refused.
            param_to_hook_all_reduce: goes with it.
            mixed_precision: is refused.
            device_mesh: of one dimension, in place of `process_group`.
            skip_all_reduce_unused_params: has no effect.
            bucket_cap_mb_list: has no effect.
            batched_grad_copy: has no effect.
            forward_sync_buffers: whether buffers are broadcast before forward passes; it goes before
                `broadcast_buffers`, and always broadcasts them here.

        Raises:
            RuntimeError: torch.distributed is not initialized, nothing requires a gradient, the ranks'
                modules differ, or a rank is gone; the text says which.
            TypeError, ValueError: an argument, or a parameter's type or device, is not supported.
        """
        super().__init__()
        if mixed_precision is not None:
            raise ValueError(
                "mixed_precision is not supported; use torch.autocast in the forward pass, or torch's own "
                'torch.nn.parallel.DistributedDataParallel on the backend "smddp"'
            )
        self.process_group = _group_of(process_group, device_mesh)
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.module, self.dim = module, dim
        trained = self._check_parameters(delay_all_reduce_named_params or ())
        self.device = trained[0][1].device
        self.device_type = self.device.type
        self.device_ids, self.output_device = _devices(device_ids, output_device, trained)
        self.is_multi_device_module = len({each.device for _, each in trained}) > 1
        self.forward_sync_buffers = next(
            (each for each in (forward_sync_buffers, broadcast_buffers) if each is not None), True
        )
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._joins: Optional[bool] = None  # in join(): throw_on_early_termination
        self._number = 0
        if init_sync:
            buffers = self._named_buffers() if broadcast_buffers is not False or forward_sync_buffers else []
            descriptions = [describe("parameter", *each) for each in self._named_parameters()]
            self._number = compare(
                [*descriptions, *(describe("buffer", *each) for each in buffers)], self.process_group
            )
            self._broadcast_state(self.process_group.ranks[0], [each for _, each in buffers])
        self._make_reducer()

    @property
    def broadcast_buffers(self) -> bool:
        """Whether buffers are broadcast before forward passes."""
        return self.forward_sync_buffers

    def _named_parameters(self) -> List[Tuple[str, torch.Tensor]]:
        return [each for each in self.module.named_parameters() if each[0] not in self.parameters_to_ignore]

    def _named_buffers(self) -> List[Tuple[str, torch.Tensor]]:
        return [each for each in self.module.named_buffers() if each[0] not in self.parameters_to_ignore]

    def _check_parameters(self, delayed: Sequence[Any]) -> List[Tuple[str, torch.Tensor]]:
        """Returns the parameters that require gradients."""
        parameters = self._named_parameters()
        for name, each in parameters:
            if isinstance(each, torch.nn.parameter.UninitializedParameter):
                raise RuntimeError(f"the parameter {name!r} has no shape yet; run a forward pass first")
            if hasattr(each, "_in_backward_optimizers"):
                raise ValueError(
                    f"the parameter {name!r} has an optimizer that runs in the backward pass, and would use "
                    "gradients before they are averaged; use one after the backward pass"
                )
            if hasattr(each, "__tensor_flatten__"):
                raise TypeError(
                    f"the parameter {name!r} is a {type(each).__name__}, but dense parameters are supported "
                    'alone; use fully_shard() or torch\'s own DistributedDataParallel on the backend "smddp"'
                )
            check_dense(each)
        own = {id(each) for _, each in parameters}
        for name, each in delayed:
            if id(each) not in own:
                raise ValueError(
                    f"delay_all_reduce_named_params has {name!r}, which is no parameter of the module; make "
                    "it one, or reduce its gradient with torch.distributed.all_reduce()"
                )
        trained = [(name, each) for name, each in parameters if each.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed for a module without parameters that require a "
                "gradient; call the module itself"
            )
        for _, each in trained:
            as_numbers(each.detach()[:0] if each.dim() else each.detach())
        return trained

    def _make_reducer(self) -> None:
        parameters = self._named_parameters()
        self._frozen = [(name, each) for name, each in parameters if not each.requires_grad]
        sparse = {
            id(each.weight)
            for each in self.module.modules()
            if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.sparse
        }
        self._reducer = Reducer(
            self.process_group,
            [(name, each) for name, each in parameters if each.requires_grad],
            sparse,
            f"{type(self.module).__name__} (number {self._number})",
            self.find_unused_parameters,
            self.static_graph,
        )

    def _broadcast_state(self, root: int, buffers: Sequence[torch.Tensor]) -> None:
        broadcast([*(each for _, each in self._named_parameters()), *buffers], root, self.process_group)

    # ---- Forward passes ----

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the module; before that, buffers are broadcast. Collective if there are any.

        Raises:
            RuntimeError: the backward pass before has not reached all parameters; the text names them.
            torch.distributed.DistBackendError: a rank is gone, or has failed.
        """
        inputs, kwargs = self._before_forward(inputs, kwargs)
        output = self.module(*inputs, **kwargs)
        self._watch_outputs(output)
        return output

    # Dynamo does not look into these.
    @torch._disable_dynamo
    def _before_forward(self, inputs: Any, kwargs: Any) -> Tuple[Any, Any]:
        syncs = torch.is_grad_enabled() and self.require_backward_grad_sync
        if syncs:
            self._check_reducer()
        if torch.is_grad_enabled():
            self._reducer.is_active = self.require_backward_grad_sync
        if self._joins:
            self._check_nobody_has_ended()
        if self.require_forward_param_sync and self.forward_sync_buffers:
            buffers = [each for _, each in self._named_buffers()]
            if buffers:
                broadcast(buffers, self._root(), self.process_group)
        self.require_forward_param_sync = syncs
        if not self.device_ids:
            return inputs, kwargs
        place = torch.device(self.device_type, self.device_ids[0])
        return pytree.tree_map_only(torch.Tensor, functools.partial(_move, place), (inputs, kwargs))

    def _check_reducer(self) -> None:
        if self._reducer.was_replaced:
            raise RuntimeError(
                "another DistributedDataParallel was made for parameters of this module; use that one alone"
            )
        self._reducer.check_all_came()
        for name, each in self._frozen:
            if each.requires_grad:
                raise RuntimeError(
                    f"the parameter {name!r} was frozen when the module was wrapped, and requires a gradient "
                    "now, which would not be averaged; wrap the module again: DistributedDataParallel(module)"
                )

    def _root(self) -> int:
        """Returns the rank whose buffers all get; in join() one that has not ended. Collective there."""
        if self._joins is None:
            return self.process_group.ranks[0]
        number = torch.tensor([self.process_group.ranks[self.process_group.rank()]])
        dist.all_reduce(number, dist.ReduceOp.MAX, self.process_group)
        return int(number)

    @torch._disable_dynamo
    def _watch_outputs(self, output: Any) -> None:
        if not torch.is_grad_enabled():
            return
        for each in _tensors_in(output):
            if each.requires_grad:
                each.register_hook(self._reducer.begin)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes in this block stay this rank's own, and add up.

        The next backward pass of a forward pass outside of it averages the sums.
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ---- Ranks with different numbers of batches ----

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """A block that ranks may end at different times, because they have different numbers of batches.

        A rank that comes to its end waits there for the others. Their collectives in the process group are
        without it meanwhile, be they of this module or not. When all are there, they get the parameters and
        buffers of the rank that was the last. An exception in the block is an error on the other ranks.

        Args:
            divide_by_initial_world_size: whether sums are divided by the number of all ranks, so that each
                batch counts the same; else by that of the ranks which still train.
            enable: False does nothing.
            throw_on_early_termination: whether all ranks get an error as soon as one has come to its end.

        Raises:
            RuntimeError: as `throw_on_early_termination` says; or a rank has ended in another way.
            NotImplementedError: a gradient is sparse.
        """
        if not enable:
            yield
            return
        if self._reducer.has_sparse:
            raise NotImplementedError(
                "join() does not support the gradients of Embedding(sparse=True); use dense gradients, or "
                "the same number of batches on all ranks"
            )
        self._joins = throw_on_early_termination
        self._reducer.divide_by(self.process_group.size() if divide_by_initial_world_size else None)
        try:
            yield
            if throw_on_early_termination:
                self._check_all_have_ended()
        finally:
            self._joins = None
            self._reducer.divide_by(None)
        last = communicators.leave_and_return([self.process_group.communicator])
        buffers = self._named_buffers() if self.forward_sync_buffers else []
        self._broadcast_state(last, [each for _, each in buffers])

    def _count(self, goes_on: bool) -> int:
        """Returns how many ranks go on. Collective."""
        number = torch.tensor([int(goes_on)])
        dist.all_reduce(number, group=self.process_group)
        return int(number)

    def _check_nobody_has_ended(self) -> None:
        if self._count(goes_on=True) < self.process_group.size():
            raise RuntimeError(
                "another rank has come to the end of its data: join(throw_on_early_termination=True)"
            )

    def _check_all_have_ended(self) -> None:
        if self._count(goes_on=False) > 0:
            rank = self.process_group.ranks[self.process_group.rank()]
            raise RuntimeError(
                f"rank {rank} has come to the end of its data before others: "
                "join(throw_on_early_termination=True)"
            )

    def join_hook(self, **_: Any) -> NoReturn:
        """Is refused: torch.distributed.algorithms.Join would call collectives that nobody answers."""
        raise NotImplementedError(
            "torch.distributed.algorithms.Join does not support this DistributedDataParallel; use "
            'model.join(), or torch.nn.parallel.DistributedDataParallel on the backend "smddp"'
        )

    # ---- The rest of torch's interface ----

    def register_comm_hook(self, state: Any, hook: Callable[..., Any]) -> NoReturn:
        """Is refused: there are no buckets that a hook could reduce."""
        raise NotImplementedError(
            "this DistributedDataParallel has no buckets, and so no communication hooks; use "
            'torch.nn.parallel.DistributedDataParallel on the backend "smddp", which has them'
        )

    def _set_static_graph(self) -> None:
        """As static_graph=True, for older scripts; before the first forward pass."""
        self.static_graph = self._reducer.is_static = True

    def __getstate__(self) -> Dict[str, Any]:
        """What torch.save() and copy.deepcopy() take along.

        Raises:
            RuntimeError: the process group is not the default one, which alone a copy could find again.
        """
        if self.process_group is not dist.group.WORLD:
            raise RuntimeError(
                "a DistributedDataParallel can be copied and saved with the default process group only; copy "
                "or save model.module, or model.state_dict()"
            )
        left_out = ("process_group", "_reducer", "_frozen")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """Makes the copy reduce its own gradients, in the default process group."""
        super().__setstate__(state)
        self.process_group = _group_of(None, None)
        self._make_reducer()


def _group_of(group: Optional[dist.ProcessGroup], mesh: Any) -> ProcessGroupSmddp:
    if group is not None and mesh is not None:
        raise ValueError("give either process_group or device_mesh, not both")
    if mesh is not None:
        if mesh.ndim != 1:
            raise ValueError(f"device_mesh must have one dimension, but has {mesh.ndim}: {mesh}")
        group = mesh.get_group(mesh_dim=0)
    if group is None:
        if not dist.is_initialized():
            raise RuntimeError(
                "there is no process group yet; call torch.distributed.init_process_group("
                'backend="smddp") before DistributedDataParallel'
            )
        group = dist.group.WORLD
    if not isinstance(group, ProcessGroupSmddp):
        raise ValueError(
            f"the process group must be of the backend smddp, and this rank a member; it is {group!r}"
        )
    return group


def _devices(ids: Any, output: Any, parameters: Sequence[Tuple[str, torch.Tensor]]) -> Tuple[Any, Any]:
    """Returns torch's attributes device_ids and output_device."""
    devices = {each.device for _, each in parameters}
    if len({each.type for each in devices}) > 1:
        raise ValueError(f"the parameters must be on one type of devices, but are on {_names(devices)}")
    if ids is not None and len(ids) > 1:
        raise ValueError(f"device_ids must be None or have one device, but are {ids}")
    if not ids and output is None:
        return None, None
    (device, *others) = devices
    if others or device.type == "cpu":
        raise ValueError(
            "device_ids and output_device must be left out for modules on a CPU or on several devices; they "
            f"are {ids} and {output}, and the module is on {_names(devices)}"
        )
    index = [torch.device(device.type, each) if isinstance(each, int) else torch.device(each) for each in ids]
    return [each.index for each in index], index[0].index if output is None else output


def _names(devices: Set[torch.device]) -> str:
    return ", ".join(sorted(map(str, devices)))


def _move(place: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(place, non_blocking=True)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    for each in pytree.tree_leaves(value):
        if isinstance(each, torch.Tensor):
            yield each
        elif dataclasses.is_dataclass(each):
            for field in dataclasses.fields(each):
                yield from _tensors_in(getattr(each, field.name))
