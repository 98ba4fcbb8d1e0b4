"""tf_smddp.horovod.tensorflow: the names, orders and defaults of the arguments are those of Horovod 0.28.1.

They were read there with inspect.signature. A function may have more arguments after them, with defaults.
"""

import inspect

import pytest

import tf_smddp.horovod.tensorflow as hvd
import tf_smddp.horovod.tensorflow.keras as hvd_keras

pytestmark = [pytest.mark.one_rank]

GIVEN = inspect.Parameter.empty  # there is no default
PLAIN, WORLD = hvd.Compression.none, hvd.global_process_set

SCALED = {"prescale_factor": 1.0, "postscale_factor": 1.0}
DEVICES = {"device_dense": "", "device_sparse": ""}
REDUCED = {"average": None, **DEVICES, "compression": PLAIN, "op": None, **SCALED}
SCATTERED = {"device_dense": "", "compression": PLAIN, "op": hvd.Average}
NAMED = {"name": None, "ignore_name_scope": False, "process_set": WORLD}
OBJECT = {"session": None, "name": None, "process_set": WORLD}
TAPE = {
    "gradtape": GIVEN,
    **DEVICES,
    "compression": PLAIN,
    "sparse_as_dense": False,
    "op": hvd.Average,
    "gradient_predivide_factor": 1.0,
    "num_groups": 0,
    "groups": None,
    "process_set": WORLD,
}
NUMBERS_AND_SETS = {
    **{
        name: {}
        for name in (
            *("shutdown", "is_initialized", "stop_timeline"),
            *("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"),
            *("mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built"),
            *("nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"),
        )
    },
    "init": {"comm": None, "process_sets": None},
    "start_timeline": {"file_path": GIVEN, "mark_cycles": False},
    "add_process_set": {"process_set": GIVEN},
    "remove_process_set": {"process_set": GIVEN},
    "broadcast_global_variables": {"root_rank": GIVEN},
}
TENSORFLOW = {
    **NUMBERS_AND_SETS,
    "is_homogeneous": {},
    "join": {},
    "rank_op": {"name": None},
    "local_rank_op": {"name": None},
    "local_size_op": {"name": None},
    "size_op": {"process_set_id": 0, "name": None},
    "process_set_included_op": {"process_set_id": 0, "name": None},
    "allreduce": {
        "tensor": GIVEN,
        **REDUCED,
        "name": None,
        "process_set": WORLD,
        "ignore_name_scope": False,
    },
    "grouped_allreduce": {
        "tensors": GIVEN,
        **REDUCED,
        "process_set": WORLD,
        "ignore_name_scope": False,
        "name": None,
    },
    "allgather": {"tensor": GIVEN, **NAMED},
    "grouped_allgather": {"tensors": GIVEN, **NAMED},
    "broadcast": {"tensor": GIVEN, "root_rank": GIVEN, **NAMED},
    "broadcast_": {"variables": GIVEN, "root_rank": GIVEN, "name": None, "process_set": WORLD},
    "broadcast_variables": {"variables": GIVEN, "root_rank": GIVEN, "process_set": WORLD, "inplace": False},
    "alltoall": {"tensor": GIVEN, "splits": None, **NAMED},
    "reducescatter": {
        "tensor": GIVEN,
        **SCATTERED,
        "name": None,
        "process_set": WORLD,
        "ignore_name_scope": False,
        **SCALED,
    },
    "grouped_reducescatter": {"tensors": GIVEN, **SCATTERED, "process_set": WORLD, **SCALED},
    "broadcast_object": {"obj": GIVEN, "root_rank": 0, **OBJECT},
    "broadcast_object_fn": {"root_rank": 0, **OBJECT},
    "allgather_object": {"obj": GIVEN, **OBJECT},
    "BroadcastGlobalVariablesHook": {"root_rank": GIVEN, "device": ""},
    "DistributedGradientTape": {**TAPE, "scale_local_gradients": True},
    "PartialDistributedGradientTape": {**TAPE, "local_layers": None, "scale_local_gradients": True},
    "DistributedOptimizer": {
        "optimizer": GIVEN,
        "name": None,
        "use_locking": False,
        **DEVICES,
        "compression": PLAIN,
        "sparse_as_dense": False,
        "backward_passes_per_step": 1,
        "op": hvd.Average,
        "gradient_predivide_factor": 1.0,
        "average_aggregated_gradients": False,
        "num_groups": 0,
        "groups": None,
        "process_set": WORLD,
        "scale_local_gradients": True,
    },
}
OPTIMIZER = {
    "optimizer": GIVEN,
    "name": None,
    **DEVICES,
    "compression": PLAIN,
    "sparse_as_dense": False,
    "gradient_predivide_factor": 1.0,
    "op": hvd.Average,
}
KERAS = {
    **NUMBERS_AND_SETS,
    "allreduce": {
        "value": GIVEN,
        "name": None,
        "average": None,
        **SCALED,
        "op": None,
        "compression": PLAIN,
    },
    "allgather": {"value": GIVEN, "name": None},
    "broadcast": {"value": GIVEN, "root_rank": GIVEN, "name": None},
    "reducescatter": {"value": GIVEN, "name": None, "op": hvd.Average},
    "DistributedOptimizer": {
        **OPTIMIZER,
        "backward_passes_per_step": 1,
        "average_aggregated_gradients": False,
        "num_groups": 0,
        "groups": None,
        "process_set": WORLD,
        "scale_local_gradients": True,
    },
    # of horovod.keras
    "PartialDistributedOptimizer": {
        **OPTIMIZER,
        "groups": None,
        "process_set": WORLD,
        "local_layers": None,
        "scale_local_gradients": True,
    },
    "load_model": {
        "filepath": GIVEN,
        "custom_optimizers": None,
        "custom_objects": None,
        "compression": PLAIN,
        "legacy_opts": False,
    },
}
CALLBACKS = {
    "BroadcastGlobalVariablesCallback": {"root_rank": GIVEN, "device": "", "local_variables": None},
    "MetricAverageCallback": {"device": ""},
    "LearningRateScheduleCallback": {
        "initial_lr": GIVEN,
        "multiplier": GIVEN,
        "start_epoch": 0,
        "end_epoch": None,
        "staircase": True,
        "momentum_correction": True,
        "steps_per_epoch": None,
    },
    "LearningRateWarmupCallback": {
        "initial_lr": GIVEN,
        "warmup_epochs": 5,
        "momentum_correction": True,
        "steps_per_epoch": None,
        "verbose": 0,
    },
    "BestModelCheckpoint": {
        "monitor": "val_loss",
        "verbose": 0,
        "save_weights_only": False,
        "mode": "auto",
        "save_freq": "epoch",
    },
}
STATES = {
    "ObjectState": {"bcast_object": GIVEN, "get_rank": GIVEN, "kwargs": GIVEN},
    "TensorFlowKerasState": {"model": GIVEN, "optimizer": None, "backend": None, "kwargs": GIVEN},
    "TensorFlowState": {"variables": None, "session": None, "kwargs": GIVEN},
    "run": {"func": GIVEN},
}
KERAS_STATES = {
    **{name: arguments for name, arguments in STATES.items() if name in ("TensorFlowKerasState", "run")},
    "KerasState": {"model": GIVEN, "optimizer": None, "kwargs": GIVEN},
    "CommitStateCallback": {"state": GIVEN, "batches_per_commit": 1},
    "UpdateBatchStateCallback": {"state": GIVEN},
    "UpdateEpochStateCallback": {"state": GIVEN},
}
MODULES = {
    "tensorflow": (hvd, TENSORFLOW),
    "keras": (hvd_keras, KERAS),
    "keras.callbacks": (hvd_keras.callbacks, CALLBACKS),
    "elastic": (hvd.elastic, STATES),
    "keras.elastic": (hvd_keras.elastic, KERAS_STATES),
}
# docs/horovod.md says how the first three differ; Horovod has the last one for PyTorch only.
NOT_HOROVODS = {"Compression", "ProcessSet", "SyncBatchNormalization", "barrier"}


@pytest.mark.parametrize("name", MODULES)
def test_every_function_and_class_has_horovods_arguments(name):
    module, expected = MODULES[name]
    callables = {each for each in module.__all__ if callable(getattr(module, each))}
    assert callables - NOT_HOROVODS == set(expected)
    for function, arguments in expected.items():
        found = list(inspect.signature(getattr(module, function)).parameters.values())
        begin = {each.name: each.default for each in found[: len(arguments)]}
        assert list(begin.items()) == list(arguments.items()), function
        rest = [each.name for each in found[len(arguments) :] if each.default is GIVEN]
        assert not rest, f"{function} needs {rest}, too"
