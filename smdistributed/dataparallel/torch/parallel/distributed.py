"""SMDDP's path of `DistributedDataParallel`, which is torch_smddp's."""

from torch_smddp import DistributedDataParallel as DistributedDataParallel
