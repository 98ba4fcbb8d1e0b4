"""The steps of lease.sh with PyTorch: what two ranks do that share a GPU, as if each had one of its own.

`smddprun -np 2 python lease_torch.py MODE`, where MODE is `train`; `peer`, the same beside torch's backend
for the device; or how rank 1 ends, `kill`, `stop` or `throw`. A line that begins with "figure: " goes into
the table. On a machine without a GPU it runs on the CPU, where the peer is Gloo in place of NCCL.
"""

import hashlib
import os
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # the same bits in each run
import torch
import torch.distributed as dist
from lease_ranks import STEP, end_rank, write, write_end
from torch import nn

import smddp
import torch_smddp

MODE = sys.argv[1]
STEPS = 20
HAS_GPU = torch.cuda.is_available()
PEER = "nccl" if HAS_GPU else "gloo"

dist.init_process_group("smddp")
RANK = dist.get_rank()
DEVICE = torch.device("cpu")
if HAS_GPU:
    DEVICE = torch.device("cuda", smddp.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


class ResNet(nn.Module):
    """Residual blocks with convolutions; takes images."""

    shape = (8, 3, 16, 16)

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Linear(32, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()
            )
            for _ in range(4)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x.mean((2, 3)))


class Transformer(nn.Module):
    """Two layers of attention; takes sequences."""

    shape = (8, 16, 64)

    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(16, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.layers(x + self.positions)


def train_model(kind, wrap):
    """Returns the weights, which all ranks must have to the bit, and the milliseconds of a step."""
    torch.manual_seed(0)
    model = wrap(kind().to(DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    data = torch.randn(STEPS, *kind.shape, generator=torch.Generator().manual_seed(RANK)).to(DEVICE)
    for step, batch in enumerate(data):
        if step == 1:
            begin = time.monotonic()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    weights = torch.cat([each.detach().flatten() for each in model.parameters()]).cpu()
    milliseconds = 1e3 * (time.monotonic() - begin) / (STEPS - 1)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, weights)
    assert all(torch.equal(weights, each) for each in everyone), "the ranks have different weights"
    return weights, milliseconds


def train(ways):
    """Trains both models in each way, to the same weights but for rounding."""
    figures, digest = [], hashlib.sha256()
    for kind in (ResNet, Transformer):
        found = {name: train_model(kind, wrap) for name, wrap in ways.items()}
        weights = next(iter(found.values()))[0]
        for other, _ in found.values():
            torch.testing.assert_close(other, weights, rtol=1e-3, atol=1e-4)
        figures.append(f"{kind.__name__} " + ", ".join(f"{ms:.1f}" for _, ms in found.values()))
        digest.update(weights.numpy().tobytes())
    write(f"weights: {digest.hexdigest()[:16]}")
    moved = smddp.stats()["collectives"]["allreduce"]["nccl_bytes"]
    assert (moved > 0) == (HAS_GPU and "FAULTY_NCCL" not in os.environ), moved
    if RANK == 0:
        write(f"figure: ms a step on {DEVICE}: {'; '.join(figures)} ({', '.join(ways)})")


def torchs(group=None):
    return lambda module: nn.parallel.DistributedDataParallel(module, process_group=group)


WAYS = {"ours": torch_smddp.DistributedDataParallel, "torch's on smddp": torchs()}


def peer():
    """The sums of each type are torch's, and so are the weights."""
    group = dist.new_group(backend=PEER)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        ours = (torch.arange(300_000, device=DEVICE) % 61 + RANK).to(dtype)
        theirs = ours.clone()
        dist.all_reduce(ours)
        dist.all_reduce(theirs, group=group)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    train({**WAYS, f"torch's on {PEER}": torchs(group)})


def end():
    """Rank 1 ends in a step; rank 0 tells how long its error took."""
    try:
        for step in range(1_000_000):
            total = torch.ones(5_000, device=DEVICE)
            dist.all_reduce(total)
            total = total + total  # a kernel behind it
            if step == STEP and RANK == 1:
                end_rank(MODE)
    except dist.DistBackendError as error:
        write_end(str(error))


{"train": lambda: train(WAYS), "peer": peer}.get(MODE, end)()
if MODE in ("train", "peer"):
    dist.destroy_process_group()
