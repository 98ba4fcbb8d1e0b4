"""DistributedDataParallel, ours beside torch's over Gloo: python parallel_job.py FOLDER [NAMES].

Each function that `same` marks is run with either one. It returns tensors, which must be equal on all ranks,
and in a job of two ranks equal to the bit with both. Those that `ours` marks check something of ours alone.
Each rank writes FOLDER/results-RANK: a JSON object with "" for each function, or what was wrong.
"""

import collections
import contextlib
import copy
import dataclasses
import faulthandler
import functools
import io
import json
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
import warnings
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import smddp
import torch_smddp

LIMIT_S = 500
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path(sys.argv[1])
SAME, OURS = {}, {}


class Way(NamedTuple):
    """A DistributedDataParallel and its group."""

    wrap: Any
    group: Any
    is_ours: bool


def same(function):
    SAME[function.__name__] = function
    return function


def ours(function):
    OURS[function.__name__] = function
    return function


def numbers(*shape, seed=0):
    """Different ones on each rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * seed + RANK))


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def results(*modules):
    """Weights, buffers and gradients."""
    return [
        tensor.detach()
        for module in modules
        for each in module.parameters()
        for tensor in (each, each.grad)
        if tensor is not None
    ]


def train(model, shape=(6, 8), steps=3, optimizer=None, loss=lambda output: output.square().mean()):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        loss(model(numbers(*shape, seed=step))).backward()
        optimizer.step()
    return results(model)


@contextlib.contextmanager
def raises(kind, *texts):
    try:
        yield
    except kind as error:
        for text in texts:
            assert text in str(error), (text, str(error))
    else:
        raise AssertionError(f"no {kind.__name__}")


def wrap(module, **options):
    return torch_smddp.DistributedDataParallel(module, **options)


# ---- Models ----


@same
def perceptron(way):
    return train(way.wrap(mlp()))


@same
def different_weights_at_the_start(way):
    module = mlp()
    with torch.no_grad():
        for each in module.parameters():
            each.add_(RANK)
    return train(way.wrap(module))


class ConvNet(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 4, 3),
            nn.BatchNorm2d(4),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 2),
        )


@same
def batch_norm(way):
    """Its buffers are those of rank 0 before each forward pass, so they differ after it."""
    model = way.wrap(ConvNet())
    trained = train(model, (4, 3, 8, 8))
    model.eval()
    model(numbers(4, 3, 8, 8))  # gets rank 0's buffers
    return trained + [each.clone() for each in model.buffers()]


@same
def own_buffers(way):
    model = way.wrap(ConvNet(), broadcast_buffers=False)
    return train(model, (4, 3, 8, 8))


@same
def large_buffers(way):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("large", torch.full((300, 300), float(RANK)))
            self.register_buffer("turned", torch.full((4, 3), float(RANK)).t())
            self.register_buffer("truth", torch.tensor([RANK == 0]))

        def forward(self, x):
            return self.layer(x)

    torch.manual_seed(0)
    model = way.wrap(Module())
    model(numbers(1, 2)).sum().backward()
    return [*results(model), *model.buffers()]


@same
def channels_last(way):
    model = way.wrap(ConvNet().to(memory_format=torch.channels_last))
    trained = train(model, (4, 3, 8, 8))
    assert not model.module[0].weight.grad.is_contiguous()
    return trained


@same
def recurrent(way):
    torch.manual_seed(0)
    return train(way.wrap(nn.LSTM(4, 5)), (3, 2, 4), loss=lambda output: output[0].square().mean())


class Positions(nn.Module):
    """With a batch of one, the gradient of `positions` lies where that of the embedding still does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.positions = nn.Embedding(50, 32), nn.Parameter(torch.randn(40, 32))
        self.layer, self.late = nn.Linear(32, 32), nn.Parameter(torch.randn(40 * 32))

    def forward(self, words):
        x = self.layer(self.words(words)) + self.positions.unsqueeze(0)
        return x + self.late.view(1, 40, 32)


@same
def gradients_in_shared_memory(way):
    model = way.wrap(Positions())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        words = torch.randint(0, 50, (1, 40), generator=torch.Generator().manual_seed(10 * step + RANK))
        optimizer.zero_grad()
        model(words).square().mean().backward()
        optimizer.step()
    return results(model)


@same
def shared_and_frozen(way):
    module = mlp()
    module[2].weight = nn.Parameter(torch.eye(16) * 0.5)
    module.insert(3, nn.Linear(16, 16))
    module[3].weight = module[2].weight
    module[0].requires_grad_(False)
    return train(way.wrap(module))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.single, self.twice = nn.Linear(8, 8), nn.Linear(8, 8).double()
        self.complex = nn.Parameter(torch.randn(8, dtype=torch.complex64))
        self.scalar, self.empty = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.empty(0, 3))
        self.turned = nn.Parameter(torch.randn(8, 4).t())

    def forward(self, x):
        x = (self.single(x) * self.complex).abs() * self.scalar + self.empty.sum()
        return self.twice(x.double()).float() @ self.turned.t()


@same
def several_dtypes(way):
    return train(way.wrap(Mixed()))


# ---- Ways to train ----


@same
def accumulation(way):
    """In no_sync() and without; gradients of zero in place of none."""
    model = way.wrap(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        with model.no_sync():
            for part in range(2):
                model(numbers(6, 8, seed=10 * step + part)).square().mean().backward()
        for part in range(2):
            model(numbers(6, 8, seed=10 * step + 5 + part)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step == 1)
    return results(model)


@same
def mixed_precision(way):
    model = way.wrap(mlp())
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(numbers(6, 8, seed=step)).float().square().mean()
        if step == 2 and RANK == 1:
            loss = loss * float("inf")  # all ranks leave the step out
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return [each.detach() for each in model.parameters()] + [torch.tensor(scaler.get_scale())]


class Checkpointed(nn.Module):
    def __init__(self, times, **options):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.layers, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.unused = nn.Linear(3, 3)
        self.times, self.options = times, options

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.times):
            x = checkpoint(lambda x: self.layers(x).relu(), x, **self.options)
        return self.last(x)


def checkpointed(times, **options):
    module = Checkpointed(times, **options)
    del module.unused
    return module


@same
def checkpoints(way):
    reentrant = train(way.wrap(checkpointed(1, use_reentrant=True)))
    return reentrant + train(way.wrap(checkpointed(3, use_reentrant=False)))


@same
def static_graph(way):
    module = Checkpointed(3, use_reentrant=True)
    return train(way.wrap(module, static_graph=True), steps=4) + train(way.wrap(mlp(), static_graph=True))


class Branches(nn.Module):
    """Which branches are used depends on the rank and the step; one is never used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.branches = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x, used):
        x = self.first(x)
        for each in used:
            x = self.branches[each](x).relu()
        return x


def train_branches(model, no_sync=False, set_to_none=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    used = [([0], [1]), ([0, 1], [0]), ([2], [2]), ([], [0, 1, 2])]
    for step, of_rank in enumerate(used):
        with model.no_sync() if no_sync else contextlib.nullcontext():
            if no_sync:
                model(numbers(6, 8, seed=50 + step), of_rank[(RANK + 1) % 2]).square().mean().backward()
        model(numbers(6, 8, seed=step), of_rank[RANK % 2]).square().mean().backward()
        assert all(each.grad is None for each in model.module.branches[3].parameters())
        optimizer.step()
        optimizer.zero_grad(set_to_none)
    return results(model)


@same
def unused_parameters(way):
    return train_branches(way.wrap(Branches(), find_unused_parameters=True))


@same
def unused_parameters_and_old_gradients(way):
    trained = train_branches(way.wrap(Branches(), find_unused_parameters=True), set_to_none=False)
    return trained + train_branches(way.wrap(Branches(), find_unused_parameters=True), no_sync=True)


@same
def two_parts_of_a_loss(way):
    """Two backward passes, of which each reaches a part of the parameters."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x):
            return self.a(x), self.b(x)

    model = way.wrap(Heads())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        a, b = model(numbers(6, 8, seed=step))
        a.square().mean().backward()
        b.square().mean().backward()
        optimizer.step()
    return results(model)


@same
def two_models_in_turn(way):
    """As a GAN trains."""
    torch.manual_seed(0)
    generator = way.wrap(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)))
    critic = way.wrap(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    for step in range(3):
        made = generator(numbers(6, 4, seed=step))
        of_critic.zero_grad()
        (critic(made.detach()).mean() - critic(numbers(6, 8, seed=20 + step)).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        critic.requires_grad_(step == 0)
        (-critic(made).mean()).backward()
        critic.requires_grad_(True)
        of_generator.step()
    return results(generator, critic)


@same
def gradient_penalty(way):
    """torch.autograd.grad() reduces nothing; the backward pass after it does."""
    model = way.wrap(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        x = numbers(6, 8, seed=step).requires_grad_()
        output = model(x)
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (output.square().mean() + slope.square().mean()).backward()
        optimizer.step()
    return results(model)


def compiled(way, wrapped, **options):
    module = mlp()
    torch._dynamo.reset()
    if wrapped == "module":
        return train(way.wrap(torch.compile(module, backend="aot_eager"), **options))
    return train(torch.compile(way.wrap(module, **options), backend="aot_eager"))


@same
def compiled_module(way):
    return compiled(way, "module")


@same
def compiled_wrapper(way):
    return compiled(way, "wrapper")


def compile_step(model):
    """Returns a compiled function that does a whole step."""
    torch._dynamo.reset()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="aot_eager")
    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


@same
def compiled_step(way):
    """The hooks of the backward pass are then called within a compiled function."""
    model = way.wrap(mlp())
    step = compile_step(model)
    for seed in range(3):
        step(numbers(6, 8, seed=seed))
    return results(model)


@ours
def compiled_autograd():
    """Is refused, as by torch's wrapper: it leaves out the end of the backward pass."""
    with torch._dynamo.config.patch(compiled_autograd=True), raises(RuntimeError, "compiled autograd"):
        compile_step(wrap(mlp()))(numbers(6, 8))


def train_uneven(way, module, shape, **options):
    model = way.wrap(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join(**options):
        for step in range(2 + 2 * (RANK == 1)):
            with model.no_sync() if step == 1 else contextlib.nullcontext():
                model(numbers(*shape, seed=step)).square().mean().backward()
            if step != 1:
                optimizer.step()
                optimizer.zero_grad()
    return [each.detach() for each in model.parameters()]


@same
def join(way):
    found = train_uneven(way, mlp(), (6, 8))
    found += train_uneven(way, mlp(), (6, 8), divide_by_initial_world_size=False)
    found += train_uneven(way, mlp(), (6, 8), divide_by_initial_world_size=False)
    return found + train_uneven(way, ConvNet(), (4, 3, 8, 8))


@same
def join_is_strict(way):
    model = way.wrap(mlp())
    with model.join(throw_on_early_termination=True):
        trained = train(model)
    done = 0
    with raises(RuntimeError), model.join(throw_on_early_termination=True):
        for step in range(2 + (RANK == 1)):
            model(numbers(6, 8, seed=step)).sum().backward()
            done = step + 1
    assert done == 2
    with model.join(enable=False):
        return trained + train(model)


class Words(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.bag = nn.Embedding(20, 4, sparse=True), nn.EmbeddingBag(20, 4, sparse=True)
        self.layer = nn.Linear(4, 20)
        if tied:
            self.layer.weight = self.words.weight

    def forward(self, words):
        return self.layer(self.words(words).mean(1) + self.bag(words))


def train_words(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        words = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(10 * step + RANK))
        model(words).square().mean().backward()
        optimizer.step()
    return [each.to_dense() if each.is_sparse else each for each in results(model)]


@same
def sparse_gradients(way):
    return train_words(way.wrap(Words()))


# ---- Ours ----


def average(tensor):
    """Of all ranks, by Gloo."""
    tensor = tensor.detach().clone()
    dist.all_reduce(tensor, group=GLOO)
    return tensor / SIZE


def check_gradients(model, reference):
    for mine, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(mine.grad, average(other.grad))


@ours
def tied_sparse_gradients():
    """A parameter whose gradient is dense, since a layer uses it beside the embedding."""
    module = Words(tied=True)
    reference = copy.deepcopy(module)
    model = wrap(module)
    words = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(RANK))
    for each in (model, reference):
        each(words).square().mean().backward()
    assert not module.words.weight.grad.is_sparse
    torch.testing.assert_close(module.words.weight.grad, average(reference.words.weight.grad))


@ours
def unused_sparse_gradients():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.words, self.never = nn.Embedding(9, 2, sparse=True), nn.Embedding(9, 2, sparse=True)
            self.layer = nn.Linear(2, 2)

        def forward(self, use):
            x = self.layer(torch.ones(1, 2))
            return x + self.words(torch.tensor([3])) if use else x

    model = wrap(Module(), find_unused_parameters=True)
    model(RANK == 1).sum().backward()
    expected = torch.zeros(9, 2)
    expected[3] = 1 / SIZE
    torch.testing.assert_close(model.module.words.weight.grad.to_dense(), expected)
    assert model.module.never.weight.grad is None


@ours
def second_backward_pass():
    """Of one forward pass; and passes of two forward passes in the other order."""
    module = mlp()
    reference = copy.deepcopy(module)
    model = wrap(module)
    for each in (model, reference):
        loss = each(numbers(6, 8)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    check_gradients(model, reference)
    for each in (model, reference):
        each.zero_grad()
        losses = [each(numbers(6, 8, seed=seed)).square().mean() for seed in (1, 2)]
        losses[1].backward()
        losses[0].backward()
    check_gradients(model, reference)


@ours
def outputs():
    """An output that is a dataclass, in which a tensor is not used; torch's own finds none there."""

    @dataclasses.dataclass
    class Output:
        used: torch.Tensor
        unused: Any

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x):
            return Output(self.a(x), {"deep": [self.b(x)]})

    module = Module()
    reference = copy.deepcopy(module)
    model = wrap(module, find_unused_parameters=True)
    for each in (model, reference):
        each(numbers(6, 8)).used.square().sum().backward()
    check_gradients(model.module.a, reference.a)
    assert module.b.weight.grad is None


@ours
def higher_derivatives():
    """Torch's own fails here on a CPU."""
    module = mlp()
    reference = copy.deepcopy(module)
    model = wrap(module)
    for each in (model, reference):
        each(numbers(6, 8)).square().mean().backward(create_graph=True)
    check_gradients(model, reference)
    for each in (*model.parameters(), *reference.parameters()):
        each.grad = None  # a cycle


@ours
def half_precision():
    for dtype in (torch.bfloat16, torch.float16):
        module = mlp().to(dtype)
        reference = copy.deepcopy(module)
        model = wrap(module)
        for each in (model, reference):
            each(numbers(6, 8).to(dtype)).float().square().mean().backward()
        for mine, other in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(mine.grad, average(other.grad.float()).to(dtype))


@ours
def converted_after_it_was_wrapped():
    model = wrap(mlp())
    model.double()
    reference = mlp().double()
    for each in (model, reference):
        each(numbers(6, 8).double()).square().mean().backward()
    check_gradients(model, reference)


@ours
def gradients_in_the_users_buffer():
    """Gradients that are views of one tensor stay so."""
    module = mlp()
    reference = copy.deepcopy(module)
    flat = torch.zeros(sum(each.numel() for each in module.parameters()))
    parts = flat.split([each.numel() for each in module.parameters()])
    for each, part in zip(module.parameters(), parts):
        each.grad = part.view_as(each)
    model = wrap(module)
    for each in (model, reference):
        each(numbers(6, 8)).square().mean().backward()
    check_gradients(model, reference)
    torch.testing.assert_close(flat, torch.cat([each.grad.flatten() for each in module.parameters()]))


@ours
def interface():
    module = mlp()
    model = wrap(module, bucket_cap_mb=25, gradient_as_bucket_view=True)
    assert list(model.state_dict()) == [f"module.{name}" for name in module.state_dict()]
    model.load_state_dict(model.state_dict())
    assert model.module is module and model.device_ids is None and model.output_device is None
    assert model.process_group is dist.group.WORLD and model.broadcast_buffers
    assert model.device == torch.device("cpu") and model.require_backward_grad_sync
    copied = copy.deepcopy(model)
    assert not torch.equal(train(copied)[0], model.module[0].weight)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for mine, other in zip(train(model), train(loaded)):
        assert torch.equal(mine, other)
    with raises(NotImplementedError, "torch.nn.parallel.DistributedDataParallel"):
        model.register_comm_hook(None, lambda state, bucket: None)
    with raises(NotImplementedError, "model.join()"):
        torch.distributed.algorithms.Join([model])


@ours
def ignored():
    module = mlp()
    module._ddp_params_and_buffers_to_ignore = ["0.weight"]
    with torch.no_grad():
        module[0].weight.add_(RANK)
    model = wrap(module)
    model(numbers(6, 8)).sum().backward()
    found = [None] * SIZE
    dist.all_gather_object(found, (module[0].weight, module[0].weight.grad, module[0].bias.grad), GLOO)
    assert not torch.equal(found[0][0], found[1][0]) and not torch.equal(found[0][1], found[1][1])
    assert torch.equal(found[0][2], found[1][2])


@ours
def delayed():
    module = mlp()
    reference = copy.deepcopy(module)
    named = [(name, each) for name, each in module.named_parameters() if "weight" in name]
    model = wrap(module, delay_all_reduce_named_params=named, param_to_hook_all_reduce=module[0].bias)
    for each in (model, reference):
        each(numbers(6, 8)).sum().backward()
    check_gradients(model, reference)
    with raises(ValueError, "'other'"):
        wrap(mlp(), delay_all_reduce_named_params=[("other", nn.Parameter(torch.ones(1)))])


@ours
def wrapped_again():
    """The later wrapper reduces gradients, once; the earlier one is an error."""
    module = mlp()
    reference = copy.deepcopy(module)
    first, model = wrap(module), wrap(module)
    for each in (model, reference):
        each(numbers(6, 8)).square().mean().backward()
    check_gradients(model, reference)
    with raises(RuntimeError, "another DistributedDataParallel"):
        first(numbers(6, 8))
    del first, model
    assert not module[0].weight._post_accumulate_grad_hooks


@ours
def part_of_the_ranks():
    group = dist.new_group([0, 2] if SIZE > 2 else [0])
    if RANK == 1:
        with raises(ValueError, "a member"):
            wrap(mlp(), process_group=group)
        return
    module = mlp()
    with torch.no_grad():
        module[0].weight.add_(RANK)
    model = wrap(module, process_group=group)
    model(torch.full((6, 8), float(RANK))).sum().backward()
    gradient = model.module[4].bias.grad
    assert torch.equal(gradient, torch.full_like(gradient, 6.0))
    assert torch.equal(module[0].weight, mlp()[0].weight)
    with raises(RuntimeError, "default process group"):
        copy.deepcopy(model)


# ---- Errors ----


@ours
def different_modules():
    def check(module, *texts):
        with raises(RuntimeError, *texts):
            wrap(module)

    size = 3 if RANK == 1 else 2
    check(
        nn.Linear(size, 2), "rank 0 has the parameter 'weight' (2, 2)", "rank 1 has the parameter", "(2, 3)"
    )
    check(nn.Linear(2, 2).to(torch.float64 if RANK == 1 else None), "of torch.float32", "of torch.float64")
    layers = [nn.Linear(2, 2) for _ in range(1 + (RANK == 1))]
    check(nn.Sequential(*layers), "rank 0 has nothing", "'1.weight'", "rank 1 4")
    named = nn.Sequential(collections.OrderedDict([("ab"[RANK == 1], nn.Linear(2, 2))]))
    check(named, "'a.weight'", "'b.weight'")
    check(nn.Linear(2, 2).requires_grad_(RANK != 1) if RANK != 1 else _frozen_weight(), "frozen")
    turned = nn.Linear(2, 3)
    if RANK == 1:
        turned.weight = nn.Parameter(turned.weight.detach().t().contiguous().t())
    check(turned, "the strides (1, 3)")
    buffers = nn.BatchNorm1d(2, track_running_stats=RANK != 1)
    check(buffers, "buffer 'running_mean'")


def _frozen_weight():
    module = nn.Linear(2, 2)
    module.weight.requires_grad_(False)
    return module


@ours
def wrong_arguments():
    with raises(RuntimeError, "not needed"):
        wrap(nn.ReLU())
    with raises(RuntimeError, "not needed"):
        wrap(nn.Linear(2, 2).requires_grad_(False))
    with raises(ValueError, "device_ids"):
        wrap(mlp(), device_ids=[0])
    with raises(ValueError, "smddp"):
        wrap(mlp(), process_group=GLOO)
    with raises(ValueError, "autocast"):
        wrap(mlp(), mixed_precision=object())
    with raises(RuntimeError, "no shape yet"):
        wrap(nn.LazyLinear(3))
    with raises(TypeError, "float8"):
        wrap(nn.ParameterList([nn.Parameter(torch.ones(2).to(torch.float8_e4m3fn))]))


def unused():
    """Returns a model, and a function that trains it."""
    module = Branches()
    module.branches = module.branches[:2]
    model = wrap(module)
    return model, lambda use_both: model(numbers(6, 8), [0, 1] if use_both else [0]).sum().backward()


@ours
def unused_is_an_error():
    """On all ranks, or on one of them, the next forward pass names the parameters; then training goes on."""
    model, step = unused()
    step(True)
    with raises(RuntimeError, "2 of 6 parameters", "branches.1.weight"):  # of the first rank that notices it
        step(False)
        step(True)
    model.zero_grad()
    step(True)
    if RANK == 1:
        step(False)
        with raises(RuntimeError, "rank 1: branches.1.weight", "find_unused_parameters=True"):
            step(True)
    else:
        with raises(dist.DistBackendError, "rank 1", "branches.1.weight"):
            step(True)
    model.zero_grad()
    step(True)
    same_everywhere(results(model))


@ours
def unfrozen_is_an_error():
    module = mlp()
    module[0].requires_grad_(False)
    model = wrap(module)
    module[0].requires_grad_(True)
    with raises(RuntimeError, "'0.weight' was frozen", "wrap the module again"):
        model(numbers(6, 8))


@ours
def a_gradient_that_comes_twice():
    with raises(RuntimeError, "twice", "use_reentrant=False"):
        train(wrap(checkpointed(2, use_reentrant=True)))
    module = mlp()
    model = wrap(nn.Sequential(module, nn.Linear(4, 4)))
    with raises(RuntimeError, "twice", "add the losses"):
        model(numbers(6, 8))
        for _ in range(2):
            module(numbers(6, 8)).sum().backward()
    train(wrap(mlp()))


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.where == RANK:
            raise FloatingPointError("on purpose")
        return gradient, None


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, where):
        return self.last(Fails.apply(self.first(x), where))


@ours
def gradients_lie_in_the_arena():
    """And nothing else does. A process that is forked has gradients of its own."""

    def in_arena(tensors):
        return [smddp.is_in_arena(each.data_ptr()) for each in tensors]

    for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
        model = wrap(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 1)), **options)
        large = [each for each in model.parameters() if each.nbytes > 4096]
        for _ in range(2):
            model.zero_grad()
            with model.no_sync():
                model(numbers(4, 64)).sum().backward()
            model(numbers(4, 64)).sum().backward()
            assert in_arena([each.grad for each in large]) == [True, True]
        assert not any(in_arena(model.parameters()))
        with model.no_sync():
            model(numbers(4, 64)).sum().backward()
        assert not any(in_arena([torch.empty(100_000)]))
        torch.autograd.grad(model(numbers(4, 64)).sum(), large)
        assert not any(in_arena([torch.empty(100_000)]))
        before = large[0].grad.clone()
        child = os.fork()
        if child == 0:
            large[0].grad.zero_()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0 and torch.equal(large[0].grad, before)
    model = wrap(Failing())
    with raises(FloatingPointError) if RANK == 0 else raises(dist.DistBackendError):
        model(numbers(6, 8), 0).sum().backward()
    assert not any(in_arena([torch.empty(100_000)]))


@ours
def exceptions_in_the_backward_pass():
    """All ranks get an error in the same step; then they train on."""
    for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
        model = wrap(Failing(), **options)
        for where in (-1, 1, -1, 0, -1):
            model.zero_grad()
            kind = FloatingPointError if where == RANK else dist.DistBackendError
            with (
                raises(kind, *([] if where == RANK else [f"rank {where}", "exception"]))
                if where >= 0
                else (contextlib.nullcontext())
            ):
                model(numbers(6, 8), where).sum().backward()
        same_everywhere(results(model))


@ours
def ctrl_c():
    """While a rank waits for the others' gradients: they get an error that names it."""
    model = wrap(mlp())

    def interrupt():
        while model._reducer._pass is None or len(model._reducer._pass.submitted) < 6:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    if RANK == 1:
        threading.Thread(target=interrupt).start()
        with raises(KeyboardInterrupt):
            model(numbers(6, 8)).sum().backward()
        dist.barrier(GLOO)
    else:
        dist.barrier(GLOO)
        with raises(dist.DistBackendError, "rank 1", "interrupted"):
            model(numbers(6, 8)).sum().backward()
    model.zero_grad()
    train(model)


@ours
def models_in_another_order():
    torch.manual_seed(0)
    a, b = wrap(nn.Linear(8, 1)), wrap(nn.Linear(8, 1))
    first, second = (a, b) if RANK == 0 else (b, a)
    with raises(dist.DistBackendError, "Linear (number"):
        first(numbers(6, 8)).sum().backward()
        second(numbers(6, 8)).sum().backward()


# ---- The job ----


def same_everywhere(tensors):
    """Checks that all ranks have equal ones."""
    everyone = [None] * SIZE
    dist.all_gather_object(everyone, [each.detach() for each in tensors], GLOO)
    for other in everyone:
        for one, theirs in zip(everyone[0], other):
            torch.testing.assert_close(one, theirs, rtol=0, atol=0, equal_nan=True)


def compare(function, ways):
    found = [function(way) for way in ways]
    assert len(found[0]) == len(found[1]), "the numbers of results differ"
    same_everywhere(found[0])
    for mine, other in zip(*found):
        assert mine.dtype == other.dtype
        tolerance = {"rtol": 0, "atol": 0} if SIZE == 2 else {}
        if SIZE > 2 and mine.dtype == torch.float64:
            # Behind float32 it has float32's rounding. The order of Gloo's sums depends on its buckets, whose
            # contents depend on which gradients came first.
            mine, other = mine.float(), other.float()
        torch.testing.assert_close(mine, other, equal_nan=True, **tolerance)


def main():
    global GLOO
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("smddp", f"file://{FOLDER}/store", rank=RANK, world_size=SIZE)
    GLOO = dist.new_group(backend="gloo")
    theirs = functools.partial(nn.parallel.DistributedDataParallel, process_group=GLOO)
    ways = Way(wrap, dist.group.WORLD, True), Way(theirs, GLOO, False)
    checks = {name: functools.partial(compare, each, ways) for name, each in SAME.items()} | OURS
    results = {}
    for name in sys.argv[2:] or checks:
        try:
            checks[name]()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    (FOLDER / f"results-{RANK}").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
