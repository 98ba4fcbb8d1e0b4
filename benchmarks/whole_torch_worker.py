"""Trains a model with torch as a script would: whole_torch_worker.py WAY --model=… --output=FILE.

run.py starts it. WAY is what joins the ranks: torch_alone (nothing), torch_ddp (DistributedDataParallel over
Gloo), either of them with sparse gradients of embeddings (torch_alone_sparse, torch_ddp_sparse),
torch_ddp_smddp (DistributedDataParallel over the engine), or torch_smddp (that of torch_smddp). Each rank
adds the line that training/blocks.py describes. All settings beside the model are torch's defaults. A step
runs op by op (eager).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from training.blocks import measure, parse_arguments
from training.torch_models import make_task

WAYS = (
    "torch_alone",
    "torch_alone_sparse",
    "torch_ddp",
    "torch_ddp_sparse",
    "torch_ddp_smddp",
    "torch_smddp",
)
LEARNING_RATE, MOMENTUM = 0.001, 0.9


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Returns SGD with momentum, as whole_worker.py has it.

    The momenta are dense from the start, as Keras's are. For a sparse gradient torch would begin with a
    sparse momentum, which gets more entries in each step.
    """
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def main() -> None:
    arguments = parse_arguments(WAYS)
    torch.set_num_threads(arguments.threads)
    rank, ranks = 0, 1
    wrap = DistributedDataParallel
    if "alone" not in arguments.way:
        backend = "gloo"
        if "smddp" in arguments.way:
            import torch_smddp

            backend = "smddp"
            wrap = torch_smddp.DistributedDataParallel if arguments.way == "torch_smddp" else wrap
        dist.init_process_group(backend)
        rank, ranks = dist.get_rank(), dist.get_world_size()
    sparse = arguments.way.endswith("_sparse")
    task = make_task(arguments.model, arguments.batch_size, seed=rank, sparse=sparse)
    optimizer = make_optimizer(task.model)
    model = wrap(task.model) if dist.is_initialized() else task.model

    def train(steps: int) -> float:
        for _ in range(steps):
            loss = functional.cross_entropy(model(task.images), task.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    measure(train, arguments, rank, ranks, f"torch {torch.__version__}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
