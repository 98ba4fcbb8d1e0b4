"""`from smdistributed.dataparallel.torch.parallel import DistributedDataParallel`: torch_smddp's."""

from smdistributed.dataparallel.torch.parallel.distributed import (
    DistributedDataParallel as DistributedDataParallel,
)
