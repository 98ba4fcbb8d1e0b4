"""`import smdistributed.dataparallel.torch.torch_smddp`: the backend "smddp" of torch.distributed."""

import torch_smddp as torch_smddp
