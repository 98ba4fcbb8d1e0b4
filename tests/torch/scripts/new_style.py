"""A training script for SMDDP's backend of torch.distributed: its imports, and nothing of ours."""

import argparse
import os

import torch
import torch.distributed as dist
from cnn import BATCH, Images, Net, train_epoch
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("output")
args = parser.parse_args()

dist.init_process_group(backend="smddp")
local_rank = int(os.environ["LOCAL_RANK"])

use_cuda = torch.cuda.is_available()
if use_cuda:
    torch.cuda.set_device(local_rank)
device = torch.device("cuda" if use_cuda else "cpu")

torch.manual_seed(1 + dist.get_rank())
dataset = Images()
sampler = torch.utils.data.distributed.DistributedSampler(
    dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank(), seed=5
)
loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=sampler)

model = DDP(Net().to(device), device_ids=[local_rank] if use_cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(2):
    sampler.set_epoch(epoch)
    loss = torch.tensor(train_epoch(model, device, loader, optimizer), device=device)
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}")
dist.barrier()
torch.save(model.module.state_dict(), f"{args.output}/new_style-{dist.get_rank()}.pt")
dist.destroy_process_group()
