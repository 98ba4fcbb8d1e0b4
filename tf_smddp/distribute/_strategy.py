"""Strategy: tf.distribute's way to write a script, with the ranks of the job as replicas."""

from __future__ import annotations

import sys
from typing import Any, List, Tuple

import tensorflow as tf

from smddp import init, is_initialized, runtime
from tf_smddp._base import tensorflow_private
from tf_smddp._base.arguments import unwrapped
from tf_smddp.distribute._extended import Extended, is_merged, missing_hooks

# What the constructors of TensorFlow's strategies take.
_OPTIONS = {
    "cluster_resolver",
    "communication",
    "communication_options",
    "compute_devices",
    "cross_device_ops",
    "device",
    "devices",
    "parameter_device",
}
_Policy = tf.data.experimental.AutoShardPolicy
_KERAS_2_TRAINING = ("keras.src.engine.training", "tf_keras.src.engine.training")
_KERAS_3_TRAINING = "keras.src.backend.tensorflow.trainer"


def _init_once() -> None:
    if not is_initialized():
        init()


def workers() -> List[str]:
    """A name for each rank, in the form of an address; nobody listens there."""
    return [f"rank{rank}:0" for rank in range(runtime.size())]


class JobClusterResolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    """Answers with the ranks of the job: each is a worker."""

    def __init__(self, *_: Any, **__: Any):
        """Takes the arguments of TensorFlow's resolvers, and ignores them."""
        _init_once()
        super().__init__(
            tf.train.ClusterSpec({"worker": workers()}),
            task_type="worker",
            task_id=runtime.rank(),
            num_accelerators={"GPU": len(tf.config.get_visible_devices("GPU"))},
        )

    def get_task_info(self) -> Tuple[str, int]:
        """Returns the task's type and number, as SlurmClusterResolver's method does."""
        return "worker", runtime.rank()


class Strategy(tf.distribute.MultiWorkerMirroredStrategy):
    """A `tf.distribute.Strategy` whose replicas are the ranks of the job, one each.

        strategy = tf_smddp.distribute.Strategy()
        with strategy.scope():
            model = ...
            model.compile(...)
        model.fit(dataset)  # of global batches: each rank takes a part of each

    It takes the place of MirroredStrategy, MultiWorkerMirroredStrategy, CentralStorageStrategy and
    OneDeviceStrategy. All that TensorFlow documents of `tf.distribute.MultiWorkerMirroredStrategy` holds for
    it, with these differences. `num_replicas_in_sync` is `size()`. A rank has one replica, on its own GPU if
    it sees one: of several, the one with the number `local_rank()`. `reduce` takes structures of values, too.
    A rank takes every `size()`th batch of an input function that does not use its `InputContext`.

    Variables, `run`, `reduce`, `gather` and reading a metric are collective: every rank must do them, in the
    same order. Gradients are reduced by TensorFlow's and Keras's optimizers inside of the strategy, so
    `DistributedOptimizer` and `DistributedGradientTape` are refused there.

    Source: https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy
    """

    reduces_over_ranks = True  # reduce_gradients.py asks for it

    def __init__(self, *places: Any, **options: Any):
        """Calls `init()`, unless the script has, and makes a strategy. Collective: every rank must call this.

        Args:
            places: not used; there for the first arguments of TensorFlow's strategies, such as devices.
            options: not used; there for the arguments by name of TensorFlow's strategies.

        Raises:
            TypeError: none of TensorFlow's strategies has such an option.
            RuntimeError: TensorFlow has used its GPUs before this rank could choose its own; or this
                TensorFlow does not call what the strategy relies on.
        """
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise TypeError(f"Strategy() got the option {unknown[0]!r}, which no strategy of TensorFlow has.")
        _init_once()
        choose_gpu()
        # Not the parent's, which would make an extended object of its own.
        tf.distribute.Strategy.__init__(self, Extended(self, JobClusterResolver()))
        self._check()

    @property
    def cluster_resolver(self) -> tf.distribute.cluster_resolver.ClusterResolver:
        """The ranks of the job, each a worker."""
        return self.extended.job_resolver

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """Reduces values over all ranks. Collective.

        Args:
            reduce_op: `tf.distribute.ReduceOp`, or its name: "SUM" or "MEAN".
            value: what `run` has returned, or a structure of such values.
            axis: a dimension that is reduced, too; None for none. A scalar has none, so that it is ignored.

        Returns:
            A tensor, or the same structure of tensors. A string is returned as it is on this rank.
        """
        # Keras 3 asks for the mean of a batch of data, which is a structure, and of scalars along axis 0.
        # MultiWorkerMirroredStrategy takes neither (keras#20585).
        caller = sys._getframe(1)
        if caller.f_code.co_name == "_maybe_symbolic_build":
            # Keras looks only at the shapes of this mean. A rank may have fewer rows than the others.
            return tf.nest.map_structure(lambda each: each.values[0], value)
        module = caller.f_globals.get("__name__")
        if module == _KERAS_3_TRAINING or module in _KERAS_2_TRAINING:
            # Keras reduces all that a step returns. With MirroredStrategy it leaves out what is no result of
            # a replica: variables, numbers, and Keras 2's results of metrics.
            found = unwrapped(value)
            if isinstance(found, tf.Variable):
                return tf.convert_to_tensor(found)
            if not isinstance(value, (tf.Tensor, tf.distribute.DistributedValues)) or is_merged(value):
                return value
            axis = None
        if isinstance(value, (tuple, list, dict)):
            return tf.nest.map_structure(lambda each: self.reduce(reduce_op, each, axis), value)
        own = value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
        if getattr(own, "dtype", None) == tf.string:
            return own
        is_scalar = getattr(getattr(own, "shape", None), "rank", None) == 0
        return super().reduce(reduce_op, value, None if is_scalar else axis)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Gives each rank its part of each batch of a `tf.data.Dataset`: by files, if each rank has one.

        Args:
            dataset: of global batches.
            options: `tf.distribute.InputOptions`.

        Returns:
            A `tf.distribute.DistributedDataset`.
        """
        policy = dataset.options().experimental_distribute.auto_shard_policy
        numbers = tensorflow_private.numbers_of_files(dataset) if policy == _Policy.AUTO else []
        if any(0 < number < runtime.size() for number in numbers):
            # Too few files, if they are files, are an error. By elements, all ranks need the same order.
            by_elements = tf.data.Options()
            by_elements.experimental_distribute.auto_shard_policy = _Policy.DATA
            by_elements.deterministic = True
            dataset = dataset.with_options(by_elements)
        return super().experimental_distribute_dataset(dataset, options)

    def _check(self) -> None:
        """Raises a RuntimeError if this TensorFlow has other names for what the strategy relies on."""
        missing = missing_hooks()
        if missing:
            raise RuntimeError(
                f"tf_smddp.distribute does not work with TensorFlow {tf.__version__}, which has no "
                f"{', '.join(missing)}."
            )
        if runtime.size() == 1 or not tf.executing_eagerly():
            return
        with self.scope():
            first = tf.Variable(float(runtime.rank()), trainable=False)
        total = float(self.reduce("SUM", tf.constant(1.0), axis=None))
        if first.numpy() != 0.0 or total != runtime.size():
            raise RuntimeError(
                f"tf_smddp.distribute does not work with TensorFlow {tf.__version__}: a sum of ones is "
                f"{total} on {runtime.size()} ranks, and a variable of rank 0's value 0.0 is {first.numpy()}."
            )


def choose_gpu() -> None:
    """Has TensorFlow use one GPU, that of this rank."""
    gpus = tf.config.list_physical_devices("GPU")
    if len(tf.config.get_visible_devices("GPU")) < 2:
        return
    own = gpus[runtime.local_rank() % len(gpus)]
    try:
        tf.config.set_visible_devices([own], "GPU")
    except RuntimeError as error:
        raise RuntimeError(
            f"Strategy() comes too late to choose {own.name} for rank {runtime.rank()}: {error} Make it "
            "before the first tensor, or start the rank with CUDA_VISIBLE_DEVICES."
        ) from error
