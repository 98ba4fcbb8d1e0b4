"""What torch does with a process group, on smddp and on Gloo: smddprun -np 2 python backend.py FOLDER.

Each function here is run with a group of either backend, and returns tensors, which must be equal to the bit.
Rank 0 writes FOLDER/results: a JSON object with "" for each function, or what was wrong.
"""

import faulthandler
import json
import os
import pathlib
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
from torch import nn

import torch_smddp  # noqa: F401

warnings.simplefilter("ignore")
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path(sys.argv[1])
LIMIT_S = 400
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def numbers(*shape, dtype=torch.float32):
    """Different ones on each rank."""
    generator = torch.Generator().manual_seed(RANK)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def train(module, steps=3, optimizer=None, forward=None):
    optimizer = optimizer or torch.optim.SGD(module.parameters(), lr=0.1)
    data = numbers(steps, 6, 8)
    for batch in data:
        optimizer.zero_grad()
        (module if forward is None else forward)(batch).square().mean().backward()
        optimizer.step()
    return [each.detach() for each in module.parameters()]


# ---- Collectives ----


@check
def reductions(group):
    results = []
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            tensor = numbers(5, 3, dtype=dtype)
            dist.all_reduce(tensor, op, group=group)
            results.append(tensor)
            tensor = numbers(7, dtype=dtype)
            dist.reduce(tensor, 1, op, group=group)
            if RANK == 1:
                results.append(tensor)
    return results


@check
def bitwise(group):
    results = []
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        tensor = numbers(9, dtype=torch.int32)
        dist.all_reduce(tensor, op, group=group)
        results.append(tensor)
    return results


@check
def layouts(group):
    """Tensors that are not contiguous, have no elements, or no dimension."""
    results = [numbers(4, 3).t(), numbers(6, 4)[::2], numbers(0, 3), numbers(), numbers(2, 3, 4, 5)]
    results[-1] = results[-1].contiguous(memory_format=torch.channels_last)
    for tensor in results[:1] + results[2:]:
        dist.all_reduce(tensor, group=group)
    dist.broadcast(results[1].contiguous(), 1, group=group)
    return results


@check
def movements(group):
    results = []
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        tensor = numbers(3, 2, dtype=dtype)
        parts = [torch.empty_like(tensor) for _ in range(SIZE)]
        dist.all_gather(parts, tensor, group=group)
        whole = tensor.new_empty(SIZE * 3, 2)
        dist.all_gather_into_tensor(whole, tensor, group=group)
        dist.broadcast(tensor, 0, group=group)
        results += [*parts, whole, tensor.clone()]
        if dtype in (torch.float32, torch.int64):  # Gloo has no others here
            got = [torch.empty_like(tensor) for _ in range(SIZE)] if RANK == 0 else None
            dist.gather(numbers(3, 2, dtype=dtype), got, 0, group=group)
            results += got or []
            dist.scatter(tensor, [*whole.chunk(SIZE)] if RANK == 1 else None, 1, group=group)
            results.append(tensor)
    return results


@check
def uneven(group):
    """Members whose tensors have different sizes. Gloo takes them in an all-to-all only."""
    rows = [2, 3, 1, 4][:SIZE]
    moved = torch.empty(SIZE * rows[RANK], 2)
    dist.all_to_all_single(moved, numbers(sum(rows), 2), [rows[RANK]] * SIZE, rows, group=group)
    parts, own = [torch.empty(each, 2) for each in rows], torch.empty(rows[RANK], 2)
    if dist.get_backend(group) == "smddp":
        dist.all_gather(parts, numbers(rows[RANK], 2), group=group)
        dist.reduce_scatter(own, list(numbers(sum(rows), 2).split(rows)), group=group)
    else:
        dist.all_gather_object(parts, numbers(rows[RANK], 2), group=group)
        whole = numbers(sum(rows), 2)
        dist.all_reduce(whole, group=group)
        own = whole.split(rows)[RANK]
    return [moved, *parts, own]


@check
def objects(group):
    mine = {"rank": RANK, "list": [1, "a" * RANK]}
    every = [None] * SIZE
    dist.all_gather_object(every, mine, group=group)
    some = [mine, RANK]
    dist.broadcast_object_list(some, 1, group=group)
    got = [None]
    dist.scatter_object_list(got, [f"for {each}" for each in range(SIZE)], 0, group=group)
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object(mine, gathered, 0, group=group)
    return [torch.tensor(list(json.dumps([every, some, got, gathered]).encode()))]


@check
def coalesced(group):
    several = [numbers(3), numbers(50, 2), numbers(1)]
    with dist._coalescing_manager(group=group):
        for each in several:
            dist.all_reduce(each, group=group)
    outputs = [torch.empty(SIZE * 3), torch.empty(SIZE * 5)]
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        for output, each in zip(outputs, (numbers(3), numbers(5))):
            dist.all_gather_into_tensor(output, each, group=group)
    manager.wait()
    return several + outputs


@check
def sparse(group):
    index = torch.tensor([[0, 2, RANK], [1, RANK, 0]])
    tensor = torch.sparse_coo_tensor(index, numbers(3), (3, 2))
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


@check
def asynchronous(group):
    """Works that end in another order than they are waited for, and their futures."""
    tensors = [numbers(1000) for _ in range(5)]
    works = [dist.all_reduce(each, group=group, async_op=True) for each in tensors]
    for work in reversed(works):
        work.wait()
    work = dist.all_reduce(numbers(4), group=group, async_op=True)
    twice = work.get_future().then(lambda future: 2 * future.value()[0]).wait()
    return [*tensors, twice]


@check
def messages(group):
    tensor, other = numbers(100), torch.empty(100)
    operations = [
        dist.P2POp(dist.isend, tensor, (RANK + 1) % SIZE, group),
        dist.P2POp(dist.irecv, other, (RANK - 1) % SIZE, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [other]


@check
def differentiable(group):
    from torch.distributed.nn import functional

    tensor = numbers(4, 3).requires_grad_()
    total = functional.all_reduce(tensor * 2, group=group)
    parts = torch.stack(functional.all_gather(tensor, group=group))
    moved = functional.all_to_all_single(torch.empty(4, 3), tensor, group=group)
    (total.square().sum() + parts.pow(3).sum() + moved.sum()).backward()
    return [total.detach(), parts.detach(), moved.detach(), tensor.grad]


@check
def functional_collectives(group):
    from torch.distributed import _functional_collectives as functional

    tensor = numbers(4, 4)

    def several(tensor):
        total = functional.all_reduce(tensor, "sum", group)
        whole = functional.all_gather_tensor(total * 2, 0, group)
        return functional.reduce_scatter_tensor(whole, "sum", 0, group), functional.broadcast(
            tensor, 0, group
        )

    compiled = torch.compile(several, backend="aot_eager", fullgraph=True)
    return [
        *several(tensor),
        *compiled(tensor),
        *functional.all_reduce_coalesced([tensor, tensor + 1], "sum", group),
    ]


# ---- Training ----


def ddp(group, **arguments):
    return train(nn.parallel.DistributedDataParallel(model(), process_group=group, **arguments))


@check
def ddp_of_torch(group):
    return ddp(group) + ddp(group, bucket_cap_mb=0.0005) + ddp(group, gradient_as_bucket_view=True)


@check
def ddp_options(group):
    return ddp(group, static_graph=True) + ddp(group, find_unused_parameters=True)


@check
def ddp_hooks(group):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    # With several buckets it calls collectives in an order that differs between the ranks, also on Gloo.
    module = nn.parallel.DistributedDataParallel(model(), process_group=group)
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)
    module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    results = train(module, 5)
    module = nn.parallel.DistributedDataParallel(model(), process_group=group)
    module.register_comm_hook(group, default_hooks.fp16_compress_hook)
    return results + train(module)


@check
def ddp_join(group):
    module = nn.parallel.DistributedDataParallel(model(), process_group=group)
    with module.join():
        return train(module, 2 + 2 * RANK)


@check
def ddp_no_sync(group):
    module = nn.parallel.DistributedDataParallel(model(), process_group=group)
    with module.no_sync():
        module(numbers(2, 8)).sum().backward()
    module(numbers(2, 8)).sum().backward()
    return [each.grad for each in module.parameters()]


class Residual(nn.Module):
    """Dynamo compiles it; a Sequential that it meets first within torch's wrapper stays as it is."""

    def __init__(self):
        super().__init__()
        self.layers = model()
        self.last = nn.Linear(4, 8)

    def forward(self, x):
        return x + self.last(self.layers(x))


@check
def ddp_compiled(group):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    module = nn.parallel.DistributedDataParallel(Residual(), process_group=group)
    results = train(module, forward=torch.compile(module, backend="aot_eager"))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
    return results


@check
def zero_redundancy(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = nn.parallel.DistributedDataParallel(model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), torch.optim.AdamW, process_group=group, lr=0.1, parameters_as_bucket_view=True
    )
    results = train(module, optimizer=optimizer)
    optimizer.consolidate_state_dict(1)
    return results


@check
def fsdp(group):
    from torch.distributed.fsdp import FullyShardedDataParallel

    module = FullyShardedDataParallel(model(), process_group=group, device_id=torch.device("cpu"))
    results = train(module)
    with FullyShardedDataParallel.summon_full_params(module):
        return results + [each.detach().clone() for each in module.parameters()]


@check
def fully_sharded(group):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    module = model()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in (module[0], module[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return [each.full_tensor() for each in train(module)]


@check
def checkpoints(group):
    from torch.distributed import checkpoint
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = DeviceMesh.from_group(group, "cpu")
    state = {"a": distribute_tensor(torch.arange(10.0), mesh, [Shard(0)]), "b": torch.ones(3)}
    folder = FOLDER / f"checkpoint-{dist.get_backend(group)}"
    checkpoint.save(state, checkpoint_id=folder, process_group=group)
    checkpoint.async_save(state, checkpoint_id=f"{folder}-2", process_group=group).result()
    loaded = {"a": distribute_tensor(torch.zeros(10), mesh, [Shard(0)]), "b": torch.zeros(3)}
    checkpoint.load(loaded, checkpoint_id=f"{folder}-2", process_group=group)
    return [loaded["a"].full_tensor(), loaded["b"]]


@check
def averaged(group):
    from torch.distributed.algorithms.model_averaging import averagers

    module = model()
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1, process_group=group)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for batch in numbers(4, 6, 8):
        optimizer.zero_grad()
        module(batch).square().mean().backward()
        optimizer.step()
        averager.average_parameters(module.parameters())
    return [each.detach() for each in module.parameters()]


def compare(function, groups):
    results = []
    for backend, group in groups.items():
        try:
            results.append(function(group))
        except Exception:
            return f"{backend}: {traceback.format_exc()}"
    for mine, other in zip(*results):
        if mine.dtype != other.dtype or not torch.equal(mine, other):
            return f"smddp: {mine}\ngloo: {other}"
    return "" if len(results[0]) == len(results[1]) else "the numbers of results differ"


def main():
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    dist.init_process_group("smddp", f"file://{FOLDER}/store", rank=RANK, world_size=SIZE)
    groups = {"smddp": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    found = {
        name: compare(function, groups)
        for name, function in CHECKS.items()
        if name in (sys.argv[2:] or CHECKS)
    }
    (FOLDER / f"results-{RANK}").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
