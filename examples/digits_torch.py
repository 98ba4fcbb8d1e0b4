"""Trains a small CNN on scikit-learn's handwritten digits with PyTorch, with any number of ranks.

    smddprun -np 2 python examples/digits_torch.py              # or torchrun --nproc-per-node 2 …
    smddprun -np 2 python examples/digits_torch.py --torch-ddp  # torch's own DistributedDataParallel
    smddprun -np 1 python examples/digits_torch.py              # one rank

The data set has 1,797 images of 8 x 8 pixels; every fifth is kept for the test. The numbered comments mark
what a script for one process needs in order to run on several. The exit code is 1 if the ranks' weights are
not equal to the bit, or if the test accuracy is below 97 % after at least the default number of epochs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Tuple

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

import torch_smddp

LEARNING_RATE = 0.003  # for one rank; scaled by the number of ranks
EPOCHS = 20
EXPECTED_ACCURACY = 0.97  # after EPOCHS


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Train a small CNN on handwritten digits.")
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, help=f"passes over the training images (default: {EPOCHS})"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: 32)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed for the weights and the order of the images"
    )
    parser.add_argument("--torch-ddp", action="store_true", help="use torch's DistributedDataParallel")
    parser.add_argument("--checkpoint", help="rank 0 saves the weights here at the end (default: nowhere)")
    return parser.parse_args()


def load_images() -> Tuple[Dataset, torch.Tensor, torch.Tensor]:
    """Returns the training data, then test images and labels; images [n, 1, 8, 8] in 0..1."""
    digits = load_digits()
    images = torch.from_numpy(digits.images / 16.0).float()[:, None]
    labels = torch.from_numpy(digits.target).long()
    test = torch.from_numpy(np.arange(len(labels)) % 5 == 4)
    return TensorDataset(images[~test], labels[~test]), images[test], labels[test]


def shift(images: torch.Tensor) -> torch.Tensor:
    """Shifts a batch by up to one pixel in each direction, at random."""
    row, column = torch.randint(3, (2,)).tolist()
    return torch.nn.functional.pad(images, (1, 1, 1, 1))[:, :, row : row + 8, column : column + 8]


def make_model() -> torch.nn.Module:
    """Returns a CNN with about 120,000 weights, from images [n, 1, 8, 8] to logits [n, 10]."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Dropout(0.15),
        torch.nn.Flatten(),
        torch.nn.Linear(1024, 96),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(96, 10),
    )


def weights_are_equal(model: torch.nn.Module) -> bool:
    """Returns whether all ranks have the same weights, to the bit. Collective: every rank must call this."""
    equal = torch.tensor(1)
    for weight in model.parameters():
        of_rank_0 = weight.detach().clone()
        dist.broadcast(of_rank_0, src=0)
        equal &= int(torch.equal(weight, of_rank_0))
    dist.all_reduce(equal, op=dist.ReduceOp.MIN)
    return bool(equal)


def main() -> int:
    """Trains and tests the model, prints a summary on rank 0, and returns the exit code."""
    arguments = parse_arguments()

    # 1. Join the job.
    dist.init_process_group("smddp")
    rank, size = dist.get_rank(), dist.get_world_size()

    # 2. If there are GPUs, each local rank uses one of them.
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)

    # 3. Each rank takes its own part of the data, in an order that is new in each epoch. The last, incomplete
    # batch is left out. Each rank has another seed, so the ranks start with different weights until step 4
    # makes them equal.
    torch.manual_seed(arguments.seed + rank)
    train, test_images, test_labels = load_images()
    sampler: DistributedSampler = DistributedSampler(train, seed=arguments.seed, drop_last=True)
    loader = DataLoader(train, arguments.batch_size, sampler=sampler, drop_last=True)
    if len(loader) == 0:
        raise SystemExit(
            f"--batch-size {arguments.batch_size} is more than a rank's share of {len(train)} images."
        )

    # 4. The wrapper gives all ranks the weights of rank 0, and averages the gradients in each backward pass.
    make_parallel = torch.nn.parallel.DistributedDataParallel
    if not arguments.torch_ddp:
        make_parallel = torch_smddp.DistributedDataParallel
    model = make_parallel(make_model().to(device))

    # 5. All ranks together have a batch that is `size` times as large, so the learning rate is scaled
    # likewise.
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE * size)
    # The rate grows to that in the first epoch, since large steps from random weights may ruin them.
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 1 / size, total_iters=len(loader)),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, arguments.epochs - 1) * len(loader)),
        ],
        milestones=[len(loader)],
    )

    seconds = 0.0
    for epoch in range(arguments.epochs):
        begin = time.perf_counter()
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            logits = model(shift(images).to(device))
            loss = torch.nn.functional.cross_entropy(logits, labels.to(device))
            loss.backward()
            optimizer.step()
            schedule.step()
        seconds += time.perf_counter() - begin
        # 6. Only rank 0 prints, and saves the weights, since all ranks have the same ones.
        if rank == 0:
            print(f"epoch {epoch + 1}/{arguments.epochs}: loss {loss.item():.4f}", flush=True)

    equal = weights_are_equal(model)
    if arguments.checkpoint and rank == 0:
        torch.save(model.module.state_dict(), arguments.checkpoint)

    model.eval()
    with torch.no_grad():
        predicted = model.module(test_images.to(device)).argmax(1).cpu()
    accuracy = float((predicted == test_labels).float().mean())
    if rank == 0:
        images_seen = arguments.epochs * len(loader) * arguments.batch_size * size
        print(f"ranks          {size}")
        print(f"training time  {seconds:.1f} s, {images_seen / seconds:.0f} images/s")
        print(f"test accuracy  {accuracy:.2%} of {len(test_labels)} images")
        print(f"weights        {'equal to the bit on all ranks' if equal else 'DIFFER between ranks'}")
        if accuracy < EXPECTED_ACCURACY and arguments.epochs < EPOCHS:
            print(f"{EPOCHS} epochs reach {EXPECTED_ACCURACY:.0%}; this run had {arguments.epochs}.")
        elif accuracy < EXPECTED_ACCURACY:
            print(f"The test accuracy is below the expected {EXPECTED_ACCURACY:.0%}.", file=sys.stderr)

    # 7. Leave the job.
    dist.destroy_process_group()
    return 0 if equal and (accuracy >= EXPECTED_ACCURACY or arguments.epochs < EPOCHS) else 1


if __name__ == "__main__":
    sys.exit(main())
