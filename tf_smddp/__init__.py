"""Synchronous data parallelism for TensorFlow.

Every rank trains the same model on its own shard of the data; after each backward pass the gradients are
averaged over all ranks:

    import tensorflow as tf
    import tf_smddp as sdp

    sdp.init()
    ...
    with tf.GradientTape() as tape:
        loss = loss_fn(labels, model(images, training=True))
    tape = sdp.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)

Start it with `smddprun -np 2 python train.py`; a plain `python train.py` is rank 0 of 1.
This module only re-exports. The modules are in _training, _guards, _collectives, _graphs and _base, from the
top down. What they need of a job lies in the package smddp.
"""

from typing import TYPE_CHECKING, Any, List

from tf_smddp._base import one_hash_seed as _one_hash_seed  # noqa: F401  (before TensorFlow)

# isort: split
from smddp import ReduceOp, init, is_initialized, local_rank, local_size, rank, shutdown, size
from smddp.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from smddprun.notebook import run
from tf_smddp._collectives.allgather import allgather, grouped_allgather
from tf_smddp._collectives.allreduce import allreduce, grouped_allreduce
from tf_smddp._collectives.alltoall import alltoall
from tf_smddp._collectives.barrier import barrier
from tf_smddp._collectives.broadcast import broadcast, broadcast_variables
from tf_smddp._collectives.compression import Compression
from tf_smddp._collectives.objects import allgather_object, broadcast_object
from tf_smddp._collectives.oob_allreduce import oob_allreduce
from tf_smddp._collectives.overlap import overlap
from tf_smddp._collectives.reducescatter import grouped_reducescatter, reducescatter
from tf_smddp._collectives.worker_comm import get_worker_comm
from tf_smddp._graphs import program_order as _program_order  # noqa: F401  (the order of ops)
from tf_smddp._guards import last_look as _last_look  # noqa: F401  (what shutdown() does)
from tf_smddp._training.checkpoint import Checkpoint
from tf_smddp._training.gradient_tape import DistributedGradientTape
from tf_smddp._training.join import join
from tf_smddp._training.local_sgd import LocalSGD
from tf_smddp._training.optimizers import DistributedOptimizer
from tf_smddp._training.sessions import BroadcastGlobalVariablesHook, JoinHook, broadcast_global_variables
from tf_smddp._training.shard import shard
from tf_smddp._training.watching import start_profiler, stats, stop_profiler

if TYPE_CHECKING:
    from tf_smddp._training.sync_batch_normalization import SyncBatchNormalization

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Checkpoint",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "JoinHook",
    "LocalSGD",
    "ProcessSet",
    "ReduceOp",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "get_worker_comm",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "overlap",
    "rank",
    "reducescatter",
    "remove_process_set",
    "run",
    "shard",
    "shutdown",
    "size",
    "start_profiler",
    "stats",
    "stop_profiler",
]


def __dir__() -> List[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    # Keras is imported only where it is used: it takes long, and TF_USE_LEGACY_KERAS may be set until then.
    if name in ("distribute", "keras"):
        import importlib

        return importlib.import_module(f"tf_smddp.{name}")
    if name == "SyncBatchNormalization":
        from tf_smddp._training.sync_batch_normalization import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "__version__":
        from importlib import metadata

        return metadata.version("tf_smddp")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
