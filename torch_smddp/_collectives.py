"""c10d's collectives, made of the engine's requests."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from smddp import Collective, Operation, ReduceOp, Request, draw_ticket
from torch_smddp._tensors import DTYPES, as_bytes, as_numbers, buffer_of, check_dense
from torch_smddp._work import Completions, Done, Several, Work

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.SUM,
    dist.ReduceOp.AVG: ReduceOp.AVERAGE,
    dist.ReduceOp.MIN: ReduceOp.MIN,
    dist.ReduceOp.MAX: ReduceOp.MAX,
    dist.ReduceOp.PRODUCT: ReduceOp.PRODUCT,
    dist.ReduceOp.PREMUL_SUM: ReduceOp.SUM,
}
# The sum of truth values is their or, the product their and.
_BOOL_OPS = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}
_BITWISE = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}
_Finish = Optional[Callable[[], None]]


class Collectives:
    """The collectives of a process group. torch.distributed calls them by these names.

    Tensors may be contiguous or not, on a CPU or an NVIDIA GPU. The n-th collective of one member meets the
    n-th one of the others.

    Attributes:
        communicator: the engine's number of the group.
        ranks: the members: their ranks in the job, ascending.
        timeout: for which collectives wait, in seconds; 0 is SMDDP_STALL_TIMEOUT.
    """

    communicator: int
    ranks: List[int]
    timeout: float
    _index: int  # this process's among the members
    _members: int
    _completions: Completions
    _coalesced: Optional[List[Any]]  # started since torch has begun a block of several

    # ---- Reductions ----

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Replaces the tensor by the reduction of all members'."""
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Any:
        """Replaces each tensor by the reduction of all members' tensors of the same index."""
        op = opts.reduceOp if opts is not None else dist.ReduceOp(dist.ReduceOp.SUM)
        if any(each.is_sparse for each in tensors):
            return self._each(tensors, functools.partial(self._allreduce_sparse, op))
        if op.op in _BITWISE:
            return self._each(tensors, functools.partial(self._allreduce_bitwise, _BITWISE[op.op]))
        numbers = [self._numbers(each) for each in tensors]
        requests = [
            self._reduction(Collective.ALLREDUCE, op, each, each.shape, output=buffer_of(each))
            for each in numbers
        ]
        return self._run(requests, opts, tensors, _copies(numbers, tensors))

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Replaces the tensor of the root by the reduction of all members'. The others' stay as they are."""
        (tensor,) = tensors
        numbers = self._numbers(tensor)
        wanted = opts.rootRank == self._index
        output = numbers if wanted else torch.empty_like(numbers)
        request = self._reduction(
            Collective.ALLREDUCE, opts.reduceOp, numbers, numbers.shape, output=buffer_of(output)
        )
        finish = _copies([numbers], tensors) if wanted else None
        return self._run([request], opts, tensors, finish, keep=output)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """Reduces the inputs, and cuts the result into equal parts: member i gets the i-th one."""
        return self.reduce_scatter_single_coalesced([output], [input], opts, result=output)

    def reduce_scatter_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None, result: Any = None
    ) -> Any:
        """Does the same for several tensors."""
        op = opts.reduceOp if opts is not None else dist.ReduceOp(dist.ReduceOp.SUM)
        requests, staged, kept = [], [], []
        for output, each in zip(outputs, inputs):
            if each.numel() != output.numel() * self._members or each.dtype != output.dtype:
                raise ValueError(
                    f"reduce_scatter: the input must have {self._members} times the output's elements, and "
                    f"its dtype; the input is {_describe(each)}, the output {_describe(output)}"
                )
            numbers, into = self._numbers(each), _room(output)
            shape = (self._members, output.numel())
            requests.append(
                self._reduction(Collective.REDUCE_SCATTER, op, numbers, shape, output=buffer_of(into))
            )
            staged.append(into)
            kept.append(numbers)
        return self._run(
            requests, opts, outputs if result is None else result, _copies(staged, outputs), keep=kept
        )

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None
    ) -> Any:
        """Reduces the i-th tensors of all members for member i. Their sizes may differ between the i."""
        (output,), (parts,) = outputs, inputs
        flat = torch.cat([each.reshape(-1) for each in parts])
        sizes = [each.numel() for each in parts]
        if len(parts) != self._members or output.numel() != sizes[self._index]:
            raise ValueError(
                f"reduce_scatter: there must be {self._members} inputs, one for each member, and that of "
                f"this member, {self._index}, must have the output's size; they have {sizes} elements, the "
                f"output is {_describe(output)}"
            )
        if len(set(sizes)) == 1:
            return self.reduce_scatter_single(output, flat, opts)
        op = opts.reduceOp if opts is not None else dist.ReduceOp(dist.ReduceOp.SUM)
        request = self._reduction(Collective.ALLREDUCE, op, flat, flat.shape, output=buffer_of(flat))
        own = flat.split(sizes)[self._index]
        return self._run([request], opts, outputs, _copies([own.view(output.shape)], outputs), keep=flat)

    # ---- Movements ----

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Replaces the tensor by the root's."""
        (tensor,) = tensors
        check_dense(tensor)
        content = as_bytes(tensor)
        request = Request(
            Collective.BROADCAST,
            DTYPES[content.dtype],
            content.shape,
            root=self.ranks[opts.rootRank],
            communicator=self.communicator,
            output=buffer_of(content),
        )
        return self._run([request], opts, tensors, _copies([content.view(tensor.dtype)], tensors))

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """Puts the inputs of all members, of one shape, one after the other."""
        return self.all_gather_single_coalesced([output], [input], opts, result=output)

    def all_gather_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None, result: Any = None
    ) -> Any:
        """Does the same for several tensors."""
        requests, staged, kept = [], [], []
        for output, each in zip(outputs, inputs):
            if output.numel() != each.numel() * self._members or each.dtype != output.dtype:
                raise ValueError(
                    f"all_gather: the output must have {self._members} times the input's elements, and its "
                    f"dtype; the input is {_describe(each)}, the output {_describe(output)}"
                )
            into = _room(output)
            content = self._bytes(each)
            requests.append(
                self._movement(
                    Collective.ALLGATHER, content, (1, content.numel()), output=buffer_of(as_bytes(into))
                )
            )
            staged.append(into)
            kept.append(content)
        return self._run(
            requests, opts, outputs if result is None else result, _copies(staged, outputs), keep=kept
        )

    def allgather(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Puts the input of member i into the i-th output. The sizes may differ between the members."""
        (into,), (tensor,) = outputs, inputs
        self._check_list("all_gather", into)
        sizes = [each.numel() for each in into]
        if tensor.numel() != sizes[self._index] or any(each.dtype != tensor.dtype for each in into):
            raise ValueError(
                f"all_gather: the output of this member ({self._index}) must be as its input, which is "
                f"{_describe(tensor)}; the outputs are {', '.join(map(_describe, into))}"
            )
        content = self._bytes(tensor)
        flat = content.new_empty(sum(sizes) * tensor.element_size() // content.element_size())
        even = len(set(sizes)) == 1
        request = self._movement(
            Collective.ALLGATHER,
            content,
            (1, content.numel()) if even else (content.numel(),),
            output=buffer_of(flat),
            num_rows=self._members,
        )
        check = None if even else (request, [size * flat.numel() // max(1, sum(sizes)) for size in sizes])
        return self._run([request], opts, outputs, self._split(flat, into, check), keep=content)

    def allgather_coalesced(
        self, output_lists: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Any:
        """Does the same for several tensors: output_lists[i] are the tensors of member i."""
        works = [
            self.allgather([[of_member[i] for of_member in output_lists]], [each], opts)
            for i, each in enumerate(inputs)
        ]
        return Several(works, output_lists)

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any) -> Any:
        """Puts the input of member i into the root's i-th output."""
        (tensor,) = inputs
        none = tensor.new_empty(0)
        root = opts.rootRank
        parts = [tensor if i == root else none for i in range(self._members)]
        return self._exchange(
            "gather", outputs[0] if root == self._index else [none] * self._members, parts, opts, outputs
        )

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any) -> Any:
        """Puts the root's i-th input into the output of member i."""
        (output,) = outputs
        none = output.new_empty(0)
        root = opts.rootRank
        into = [output if i == root else none for i in range(self._members)]
        return self._exchange(
            "scatter", into, inputs[0] if root == self._index else [none] * self._members, opts, outputs
        )

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Any:
        """Puts the j-th input of member i into the i-th output of member j."""
        return self._exchange("all_to_all", outputs, inputs, opts, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Any:
        """Cuts the input by its first dimension: member i gets the i-th part. [] as splits cuts evenly."""
        parts = _parts("input", input, input_splits, self._members)
        into = _parts("output", output, output_splits, self._members)
        content, room = self._bytes(input), _room(output)
        row = content.numel() // max(1, sum(parts)) if sum(parts) else 1
        request = self._movement(
            Collective.ALLTOALL,
            content,
            (sum(parts), row),
            splits=parts,
            output=buffer_of(as_bytes(room)),
            num_rows=self._members,
        )
        check = _rows_are("all_to_all_single", request, into)
        return self._run([request], opts, output, _then(check, _copies([room], [output])), keep=content)

    def barrier(self, opts: Any = None) -> Any:
        """Waits until all members have called this."""
        return self._run([Request(Collective.BARRIER, communicator=self.communicator)], opts, None, None)

    # The names that c10d's collectives have in other versions of torch.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- What the collectives are made of ----

    def _numbers(self, tensor: torch.Tensor) -> torch.Tensor:
        check_dense(tensor)
        return as_numbers(tensor)

    def _bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        check_dense(tensor)
        return as_bytes(tensor)

    def _reduction(
        self, collective: Collective, op: Any, tensor: torch.Tensor, shape: Sequence[int], **arguments: Any
    ) -> Request:
        if op.op not in _OPS:
            raise ValueError(f"the backend smddp has no {op.op} here; it has {', '.join(map(str, _OPS))}")
        ours = _OPS[op.op]
        if tensor.dtype == torch.bool:
            ours = _BOOL_OPS.get(ours, ours)
        request = Request(
            collective,
            DTYPES[tensor.dtype],
            shape,
            op=ours,
            communicator=self.communicator,
            input=buffer_of(tensor),
            **arguments,
        )
        if op.op == dist.ReduceOp.PREMUL_SUM:
            request.prescale = float(op.__getstate__()[1])
        return request

    def _movement(
        self, collective: Collective, content: torch.Tensor, shape: Sequence[int], **arguments: Any
    ) -> Request:
        return Request(
            collective,
            DTYPES[content.dtype],
            shape,
            communicator=self.communicator,
            input=buffer_of(content),
            **arguments,
        )

    def _exchange(
        self, name: str, into: List[torch.Tensor], parts: List[torch.Tensor], opts: Any, result: Any
    ) -> Any:
        """An all-to-all of tensors of any sizes: parts[i] goes to member i, and into[i] comes from it."""
        self._check_list(name, into)
        self._check_list(name, parts)
        content = torch.cat([self._bytes(each).reshape(-1) for each in parts])
        flat = content.new_empty(
            sum(each.numel() * each.element_size() for each in into) // content.element_size()
        )
        request = self._movement(
            Collective.ALLTOALL,
            content,
            content.shape,
            splits=[each.numel() * each.element_size() // content.element_size() for each in parts],
            output=buffer_of(flat),
            num_rows=self._members,
        )
        rows = [each.numel() * each.element_size() // content.element_size() for each in into]
        return self._run(
            [request], opts, result, self._split(flat, into, (request, rows), name), keep=content
        )

    def _check_list(self, name: str, tensors: List[torch.Tensor]) -> None:
        if len(tensors) != self._members:
            raise ValueError(
                f"{name}: the list must have a tensor for each of {self._members} members, but has "
                f"{len(tensors)}"
            )

    def _split(
        self, flat: torch.Tensor, into: List[torch.Tensor], check: Any, name: str = "all_gather"
    ) -> _Finish:
        """Returns what cuts a flat result into the outputs."""

        def finish() -> None:
            at = 0
            for each in into:
                size = each.numel() * each.element_size() // flat.element_size()
                each.copy_(flat[at : at + size].view(each.dtype).view(each.shape))
                at += size

        return finish if check is None else _then(_rows_are(name, *check), finish)

    def _allreduce_bitwise(self, combine: Callable[..., torch.Tensor], tensor: torch.Tensor) -> None:
        parts = [torch.empty_like(tensor) for _ in range(self._members)]
        self.allgather([parts], [tensor]).wait()
        tensor.copy_(functools.reduce(combine, parts))

    def _allreduce_sparse(self, op: Any, tensor: torch.Tensor) -> None:
        """Gathers the indices and values of all members, and adds up what has the same index."""
        if op.op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG) or not tensor.is_sparse:
            raise ValueError(
                "allreduce of a sparse tensor takes ReduceOp.SUM or AVG, and no dense tensor beside it, but "
                f"got {op.op} and a tensor of the layout {tensor.layout}"
            )
        own = tensor.coalesce()
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self._members)]
        self.allgather([counts], [torch.tensor([own._nnz()])]).wait()
        gathered = []
        for part in (own.indices().t().contiguous(), own.values()):
            parts = [part.new_empty((int(count), *part.shape[1:])) for count in counts]
            self.allgather([parts], [part]).wait()
            gathered.append(torch.cat(parts))
        whole = torch.sparse_coo_tensor(gathered[0].t(), gathered[1], tensor.shape).coalesce()
        tensor.copy_(whole / self._members if op.op == dist.ReduceOp.AVG else whole)

    def _each(self, tensors: List[torch.Tensor], reduce: Callable[[torch.Tensor], None]) -> Done:
        for each in tensors:
            reduce(each)
        return Done(tensors)

    def _run(
        self, requests: Sequence[Request], opts: Any, result: Any, finish: _Finish, keep: Any = None
    ) -> Any:
        """Runs or starts the requests of one collective, as the caller wants it.

        Args:
            requests: they are one group, in which the engine combines small ones.
            opts: c10d's options; None starts.
            result: what the collective writes.
            finish: what is left to do when they have ended; None: nothing.
            keep: what must live until they have ended.
        """
        for request in requests:
            request.timeout = self.timeout
        try:
            if len(requests) == 1 and not getattr(opts, "asyncOp", True):
                requests[0].run()
                if finish is not None:
                    finish()
                return Done(result)
            if len(requests) > 1:
                ticket = draw_ticket(self.communicator)
                for index, request in enumerate(requests):
                    request.ticket, request.group_index, request.group_size = ticket, index, len(requests)
            operation = Operation(requests)
        except RuntimeError as error:
            raise dist.DistBackendError(str(error)) from None
        work = Work(operation, result, finish, self._completions, keep)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work


def _describe(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} of {tensor.dtype}"


def _room(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous tensor for the result: the tensor itself, or one to copy from."""
    check_dense(tensor)
    return (
        tensor if tensor.is_contiguous() else torch.empty_like(tensor, memory_format=torch.contiguous_format)
    )


def _copies(staged: List[torch.Tensor], outputs: List[torch.Tensor]) -> _Finish:
    """Returns what copies results to where they belong; None if all lie there."""
    pairs = [(a, b) for a, b in zip(outputs, staged) if a.data_ptr() != b.data_ptr()]

    def finish() -> None:
        for output, each in pairs:
            output.copy_(each.view(output.shape))

    return finish if pairs else None


def _then(first: Callable[[], None], second: _Finish) -> Callable[[], None]:
    def both() -> None:
        first()
        if second is not None:
            second()

    return both


def _rows_are(name: str, request: Request, rows: Sequence[int]) -> Callable[[], None]:
    """Returns what checks that the other members have sent what this one has room for."""

    def check() -> None:
        came = list(request.rows[: len(rows)])
        if came != list(rows):
            raise RuntimeError(
                f"{name}: the members have sent {came} rows or elements, but the outputs of this member take "
                f"{list(rows)}; give each output the size of what is sent to it"
            )

    return check


def _parts(what: str, tensor: torch.Tensor, splits: Sequence[int], members: int) -> List[int]:
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits and rows % members == 0:
        return [rows // members] * members
    if len(splits) != members or sum(splits) != rows:
        raise ValueError(
            f"all_to_all_single: {what}_split_sizes must be {members} numbers whose sum is the rows of the "
            f"{what}, {rows}, but are {list(splits)}"
        )
    return list(splits)
