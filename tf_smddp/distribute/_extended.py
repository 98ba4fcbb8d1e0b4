"""What a Strategy exchanges of TensorFlow's MultiWorkerMirroredStrategy; the private parts of tf.distribute.

A rank is a worker of MultiWorkerMirroredStrategy with one replica. Three of its parts are our own: how
workers meet (the job is there already, so there is no gRPC server), what goes between them, and how a step
runs (in place: one replica needs no thread). All else is TensorFlow's: variables, data sets, checkpoints.

No other module names a private part of tf.distribute. The files that hold them hardly differ between
TensorFlow 2.15 and 2.21. A method that a later TensorFlow renames would not be called, so Strategy() checks
that TensorFlow has each one that is overridden here, and tries the two without which results would be wrong.
The private parts, and what would take their place:

    CollectiveAllReduceExtended                      a StrategyExtended of our own, which is not public either
    its _initialize_single_worker, and fields        the same
    its _get_variable_creator_initial_value          a variable creator that broadcasts; checked at start
    its _create_variable                             a variable creator that counts the variables
    its _call_for_each_replica                       TensorFlow's own, which runs a thread for each replica
    its _in_multi_worker_mode                        nothing: only Keras 2 in v1 graphs needs it
    its _configure, _update_config_proto             nothing: they set up TensorFlow's own collectives
    its _batch_reduce_to, _gather_to_implementation  batch_reduce(), gather() of CrossDeviceOps
    its _make_input_context                          a data set function that is wrapped by the user
    its _make_input_fn_iterator                      nothing: only estimators need it
    its _distribute_datasets_from_function           the public method that calls it
    CrossDeviceOps' _num_between_graph_workers       reduce() of Strategy; checked at start
    CrossDeviceOps' _gather_implementation           gather() of Strategy
    CrossDeviceOps' _all_reduce                      batch_reduce_implementation, which is public
    ReplicaContext's _merge_call                     nothing: only Keras 2's batch functions need it
    distribute_utils.select_replica, .regroup        experimental_local_results; DistributedValues
    distribute_lib.StrategyExtendedV1.__init__       nothing
    resource_variable_ops.ResourceVariable           type(tf.Variable(0.0))
    values_util.mark_as_unsaveable                   FuncGraph's method of this name, not public either
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as multi_worker
from tensorflow.python.distribute import distribute_lib, distribute_utils, values_util
from tensorflow.python.ops import resource_variable_ops

from smddp import ReduceOp, runtime
from tf_smddp._collectives.allgather import allgather
from tf_smddp._collectives.broadcast import broadcast
from tf_smddp._collectives.compression import Compression
from tf_smddp._collectives.oob_allreduce import oob_allreduce
from tf_smddp._graphs import tickets
from tf_smddp._training.reduce_gradients import IN_STRATEGY, reduce_gradients

_OPS = {tf.distribute.ReduceOp.SUM: ReduceOp.SUM, tf.distribute.ReduceOp.MEAN: ReduceOp.AVERAGE}
# A rank has its own value of a variable of these types, such as a table.
_NOT_SENT = (tf.string, tf.variant, tf.resource)
# The attribute of a variable that says how many its strategy had made before. Names are not unique.
_NUMBER = "_tf_smddp_number"
# The attribute of a tensor that `merge_call` has returned.
_MERGED = "_tf_smddp_merged"


class RankOps(tf.distribute.CrossDeviceOps):
    """What goes between ranks. Each has one value."""

    @property
    def _num_between_graph_workers(self) -> int:
        return runtime.size()

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        """Reduces one value: a loss, or a variable that is reduced where it is read, as a metric's are."""
        values_util.mark_as_unsaveable()
        value = per_replica_value.values[0]
        if isinstance(value, tf.IndexedSlices):
            return self.broadcast(_reduce([value], reduce_op)[0], destinations)
        # Ranks compare the names. If a rank alone reads a variable, this never meets another reduction. In a
        # v1 graph reductions have names of their own, by which they meet.
        name = None
        if not tickets.pairs_by_name():
            name = "reduce"
            if isinstance(value, tf.Variable):
                number = getattr(value, _NUMBER, 0)
                # Keras counts layers in the process, so they differ if a rank has made a model by itself.
                name = re.sub(r"_\d+(?=[/:])", "", value.name)
                name += f" (variable {number} of the strategy), which all ranks must read"
        return self.broadcast(oob_allreduce(value, op=_OPS[reduce_op], name=name), destinations)

    def batch_reduce_implementation(
        self, reduce_op: Any, value_destination_pairs: Sequence[Tuple[Any, Any]], options: Any
    ) -> List[Any]:
        """Reduces gradients, all at once."""
        reduced = _reduce([value.values[0] for value, _ in value_destination_pairs], reduce_op)
        return [self.broadcast(each, to) for each, (_, to) in zip(reduced, value_destination_pairs)]

    def _gather_implementation(
        self, per_replica_value: Any, destinations: Any, axis: Any, options: Any
    ) -> Any:
        values_util.mark_as_unsaveable()
        value = per_replica_value.values[0]
        if value.shape.rank == 0:
            raise ValueError("gather takes tensors with at least one dimension, but got a scalar.")
        if tf.get_static_value(axis) == 0:
            return self.broadcast(allgather(value), destinations)
        rank = tf.rank(value)
        axis = tf.where(axis < 0, axis + rank, axis)
        to_front = tf.concat([[axis], tf.range(axis), tf.range(axis + 1, rank)], 0)
        gathered = allgather(tf.transpose(value, to_front))
        return self.broadcast(tf.transpose(gathered, tf.math.invert_permutation(to_front)), destinations)

    def _all_reduce(self, reduce_op: Any, value: Any, replica_id: int, options: Any) -> Any:
        return tf.nest.pack_sequence_as(value, _reduce(tf.nest.flatten(value), reduce_op))


def _reduce(values: List[Any], reduce_op: Any) -> List[Any]:
    values_util.mark_as_unsaveable()
    return reduce_gradients(values, [], Compression.none, _OPS[reduce_op], False, IN_STRATEGY)


class _Replica(tf.distribute.ReplicaContext):
    """Notes which tensors `merge_call` has returned: they are the same on all ranks."""

    def _merge_call(self, merge_fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        result = super()._merge_call(merge_fn, args, kwargs)
        for each in tf.nest.flatten(result):
            if isinstance(each, tf.Tensor):
                setattr(each, _MERGED, True)
        return result


def is_merged(value: Any) -> bool:
    """Whether `merge_call` has returned this tensor."""
    return _MERGED in getattr(value, "__dict__", ())  # hasattr() would read a variable


class _NotedInputContext(tf.distribute.InputContext):
    """Notes whether a data set function has asked for its part of the data."""

    is_used = False

    @property
    def num_input_pipelines(self) -> int:
        """The number of ranks."""
        self.is_used = True
        return int(super().num_input_pipelines)

    @property
    def input_pipeline_id(self) -> int:
        """The number of this rank."""
        self.is_used = True
        return int(super().input_pipeline_id)


class Extended(multi_worker.CollectiveAllReduceExtended):
    """The parts of a Strategy that TensorFlow calls."""

    def __init__(self, strategy: tf.distribute.Strategy, cluster_resolver: Any):
        _refuse_own_metrics()
        # Not the parent's, which would start a server.
        distribute_lib.StrategyExtendedV1.__init__(self, strategy)
        device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        self._initialize_single_worker((f"/device:{device}:0",))
        # Not _cluster_resolver: Keras 2 would open the sessions of v1 graphs at the server of the cluster.
        self.job_resolver = cluster_resolver
        self._communication_options = tf.distribute.experimental.CommunicationOptions()
        self._cross_device_ops = self._host_cross_device_ops = RankOps()
        self._worker_device = "/device:CPU:0"
        self._cluster_spec = None
        self._task_type, self._task_id = "worker", runtime.rank()
        self._num_workers, self._id_in_cluster = runtime.size(), runtime.rank()
        self._is_chief = runtime.rank() == 0
        self._num_devices_per_worker, self._local_device_type = 1, device
        self._use_var_policy = False
        self._num_variables = 0
        self.experimental_enable_get_next_as_optional = True

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        variable = super()._create_variable(next_creator, **kwargs)
        keras: Any = sys.modules.get("keras")  # which may be imported after the strategy is made
        if hasattr(keras, "ops"):
            _extend_keras_3(keras)
        self._num_variables += 1
        for own in self._container_strategy().experimental_local_results(variable):
            setattr(own, _NUMBER, self._num_variables)
        return variable

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: Any, primary_var: Any, **kwargs: Any
    ) -> Callable[[], tf.Tensor]:
        def initial_value() -> tf.Tensor:
            value = kwargs["initial_value"]
            value = value() if callable(value) else value
            value = getattr(value, "wrapped_value", value)  # of a checkpoint that is restored
            value = tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
            if self._num_workers == 1 or value.dtype in _NOT_SENT:
                return value
            return broadcast(value, 0)

        return initial_value

    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]
    ) -> Any:
        args, kwargs = distribute_utils.select_replica(0, (args, kwargs))
        replica = _Replica(self._container_strategy(), self._id_in_cluster)
        with tf.device(self._devices[0]), replica:
            return distribute_utils.regroup((fn(*args, **kwargs),))

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> List[Any]:
        pairs = [(value, _or_own_device(to, self._devices[0])) for value, to in value_destination_pairs]
        return super()._batch_reduce_to(reduce_op, pairs, options)

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: Any, options: Any) -> Any:
        return super()._gather_to_implementation(
            value, _or_own_device(destinations, self._devices[0]), axis, options
        )

    def _update_config_proto(self, config_proto: Any) -> Any:
        copy = type(config_proto)()
        copy.CopyFrom(config_proto)
        return copy

    def _configure(self, session_config: Any = None, *cluster: Any, **named: Any) -> None:
        pass

    def _in_multi_worker_mode(self) -> bool:
        # Keras 2 asks this before it opens the session of a v1 graph.
        for keras in ("keras", "tf_keras"):
            coordinator: Any = sys.modules.get(f"{keras}.src.distribute.distribute_coordinator_utils")
            plain = getattr(coordinator, "run_distribute_coordinator", None)
            if plain is not None and not isinstance(plain, functools.partial):
                coordinator.run_distribute_coordinator = functools.partial(_run_worker, coordinator, plain)
        return True

    def _make_input_context(self) -> tf.distribute.InputContext:
        return _NotedInputContext(
            num_input_pipelines=self._num_workers,
            input_pipeline_id=self._id_in_cluster,
            num_replicas_in_sync=self._num_workers,
        )

    def _distribute_datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        return super()._distribute_datasets_from_function(_sharding(dataset_fn), options)

    def _make_input_fn_iterator(self, input_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return super()._make_input_fn_iterator(_sharding(input_fn), *args, **kwargs)


def _run_worker(
    coordinator: Any,
    plain: Callable[..., Any],
    worker: Callable[[Any], Any],
    strategy: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Does what Keras's `run_distribute_coordinator` does; for our strategy without a server.

    Keras's own starts a server of TF_CONFIG's cluster, and opens the session there.
    """
    if not isinstance(strategy.extended, Extended):
        return plain(worker, strategy, *args, **kwargs)
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    return coordinator._run_single_worker(worker, strategy, None, None, None, config)


@functools.cache
def _extend_keras_3(keras: Any) -> None:
    """Has Keras 3 do two things as Keras 2 does them.

    LossScaleOptimizer skips a step on all ranks if the gradients overflow on one of them. Keras 3 checks the
    gradients of its replica before they are reduced, and a step that it skips reduces none. `compile` makes
    the mean of the losses within the model's strategy.
    """
    kind = keras.optimizers.LossScaleOptimizer
    # A model whose `compile` is not the one of this base class is loaded without being compiled.
    trainer = next(base for base in keras.Model.__mro__ if "compile" in vars(base))
    check_own, compile_anywhere = kind.check_finite, trainer.compile

    @functools.wraps(check_own)
    def check_finite(self: Any, grads: Any) -> Any:
        is_finite = check_own(self, grads)
        if runtime.size() == 1 or not isinstance(tf.distribute.get_strategy().extended, Extended):
            return is_finite
        return oob_allreduce(is_finite, op=ReduceOp.MIN)

    @functools.wraps(compile_anywhere)
    def compile_in_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.distribute_strategy
        if not isinstance(strategy.extended, Extended):
            return compile_anywhere(self, *args, **kwargs)
        with strategy.scope():
            return compile_anywhere(self, *args, **kwargs)

    kind.check_finite, trainer.compile = check_finite, compile_in_scope


@functools.cache
def _refuse_own_metrics() -> None:
    """Has it be an error that a step updates a metric that was made outside of the scope.

    It would be a rank's own: nothing would add it up. Variables that are no metric's may be a rank's own.
    """
    kind: Any = resource_variable_ops.ResourceVariable
    for name in ("assign", "assign_add", "assign_sub"):
        setattr(kind, name, _refusing_own_metrics(getattr(kind, name)))


def _is_own_in_a_step(variable: Any) -> bool:
    extended = tf.distribute.get_strategy().extended
    is_step = isinstance(extended, Extended) and not tf.distribute.in_cross_replica_context()
    return is_step and runtime.size() > 1 and not extended.variable_created_in_scope(variable)


def _refusing_own_metrics(assign: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(assign)
    def assign_in_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.synchronization is tf.VariableSynchronization.ON_READ and _is_own_in_a_step(self):
            raise ValueError(
                f"a step updates {self.name}, a variable of a metric that was made outside of the strategy: "
                "each rank would have its own value. Make the metric within 'with strategy.scope():'."
            )
        return assign(self, *args, **kwargs)

    return assign_in_scope


def _or_own_device(destinations: Any, own_device: str) -> Any:
    """Returns `own_device` for "", the device of a tensor that a function within the step has made."""
    return own_device if isinstance(destinations, str) and not destinations else destinations


def _sharding(dataset_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that gives this rank its part of the batches, if `dataset_fn` gives all."""

    def part(context: _NotedInputContext) -> Any:
        context.is_used = False
        dataset = dataset_fn(context)
        if context.is_used or runtime.size() == 1 or not isinstance(dataset, tf.data.Dataset):
            return dataset
        if runtime.rank() == 0:
            warnings.warn(
                f"the input function {getattr(dataset_fn, '__name__', dataset_fn)!r} does not use its "
                f"InputContext, so each of the {runtime.size()} ranks reads all data and takes every "
                f"{runtime.size()}th batch. To read a part alone, let it call "
                "dataset.shard(context.num_input_pipelines, context.input_pipeline_id).",
                stacklevel=2,
            )
        return dataset.shard(runtime.size(), runtime.rank())

    return part


def missing_hooks() -> List[str]:
    """The methods that are overridden here, and that this TensorFlow does not have."""
    return [
        f"{parent.__name__}.{name}"
        for ours, parent in (
            (Extended, multi_worker.CollectiveAllReduceExtended),
            (RankOps, tf.distribute.CrossDeviceOps),
            (_Replica, tf.distribute.ReplicaContext),
        )
        for name in vars(ours)
        if not (name.startswith(("__", "_abc_")) or hasattr(parent, name))
    ]
