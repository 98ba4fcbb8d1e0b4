"""What `import torch` calls: the backend "smddp" is there without an import of torch_smddp.

It is a module of its own, and imports nothing but torch until a group is made. torch calls it in the middle
of its own import, and fails if it does; a process may be in the middle of importing torch_smddp, too.
"""

from typing import Any


def register() -> None:
    """Registers the backend. It is the entry point of the group torch.backends."""
    import torch.distributed as dist

    if dist.is_available() and "SMDDP" not in dist.Backend._plugins:
        dist.Backend.register_backend("smddp", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(*arguments: Any) -> Any:
    import torch_smddp

    return torch_smddp._create(*arguments)
