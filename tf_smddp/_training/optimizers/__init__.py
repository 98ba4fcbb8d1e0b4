"""DistributedOptimizer: an optimizer that reduces the gradients over all ranks before it applies them.

One module per family of optimizers (`v1`, `keras2`, `keras3`), each of which says where it reduces gradients,
and why there. This module only re-exports.
"""

from tf_smddp._training.optimizers.factory import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
