"""`import smdistributed.dataparallel.torch.torch_smddp` registers the backend "smddp" of torch.distributed."""

import torch_smddp as torch_smddp
