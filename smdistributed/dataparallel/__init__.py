"""The import paths of SageMaker's data parallel library; what is behind them is tf_smddp.

`smdistributed` itself has no `__init__.py` (PEP 420), so that another distribution's `smdistributed.*`, such
as `smdistributed.modelparallel`, works beside this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_smddp import start_profiler, stop_profiler

__all__ = ["start_profiler", "stop_profiler"]


def __getattr__(name: str) -> Any:
    # Not imported before they are used: tf_smddp takes long, since it loads TensorFlow.
    if name in __all__:
        import tf_smddp

        return getattr(tf_smddp, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
