"""LocalSGD: an optimizer whose ranks train by themselves, and average their weights every so many steps.

After each application a variable counts it. In every `every`-th one, the ranks average the weights, in one
group, under a condition on that counter. All ranks count alike, so the condition is the same on all.

LossScaleOptimizer skips a step that is not finite, and applies the inner optimizer under that condition, in
which each rank now decides for itself. So the step is counted, and the weights are averaged, around the
outer optimizer: Keras's own LossScaleOptimizer is extended. A step that is skipped counts.

With an outer optimizer (DiLoCo, Douillard et al. 2023, arXiv:2311.08105), a variable for each weight has the
value with which the round began. What the ranks have moved on average since, with the opposite sign, is the
gradient that the outer optimizer applies to it, and the ranks go on with the result.
"""

from __future__ import annotations

import functools
import importlib
import operator
import warnings
import weakref
from typing import Any, Callable, List, Sequence

import numpy as np
import tensorflow as tf

from smddp import WORLD, ReduceOp, runtime
from tf_smddp._base.arguments import source_label, unwrapped
from tf_smddp._collectives.allgather import allgather
from tf_smddp._collectives.allreduce import allreduce_group
from tf_smddp._collectives.compression import Compression
from tf_smddp._graphs import op_parts
from tf_smddp._graphs.call_site import check_call_site, immediately
from tf_smddp._guards import gradient_use
from tf_smddp._guards.callbacks_beside import warn_within_fit, watch_fits
from tf_smddp._guards.loop_check import before_eager_reduction
from tf_smddp._guards.start_weights import make_equal, note_equal, number_of_variable
from tf_smddp._training.model_variables import optimizer_variables, optimizers_in
from tf_smddp._training.optimizers.arguments import reduces
from tf_smddp._training.optimizers.reclassing import Averages, has_ancestor, make_distributed, state_of

_CALLER = "LocalSGD"
_KINDS = ("BaseOptimizer", "_BaseOptimizer", "OptimizerV2", "BaseLossScaleOptimizer")
_CHECKPOINT_NAME = "tf_smddp_local_sgd"


def LocalSGD(optimizer: Any, every: int, outer: Any = None) -> Any:
    """Makes an optimizer train each rank by itself, and average the weights of all ranks every `every` steps.

        optimizer = sdp.LocalSGD(tf.keras.optimizers.Adam(0.001), every=16)
        model.compile(optimizer, "mse")

    It takes the place of `DistributedOptimizer` where communication takes most of a step: the ranks send
    their weights in one step of `every`, and nothing in the others. The training is another one than the
    synchronous one, but for `every=1` with SGD.

    With `outer` it is DiLoCo: the mean of what the ranks have moved is a gradient for this second optimizer.
    Begin with `SGD(0.7, momentum=0.9, nesterov=True)`, and AdamW as the first one.

    The function changes the given optimizer and returns it. The optimizer keeps its state, is still an
    instance of its class, and saves and loads as a plain one. Steps are counted in `model.fit`, `minimize`,
    `apply_gradients` or Keras 3's `apply`; all ranks must take equally many, unless they are in `join`. Only
    the variables that are applied there are averaged. All else stays each rank's own: the optimizer's
    variables, such as momentum, and what is not trained, such as the statistics of BatchNormalization.

    Between two averagings each rank has weights of its own. `optimizer.synchronize()`, which is collective,
    averages them at once, and begins the next round; after an averaging it changes nothing. Call it before
    you evaluate or save the weights. `BroadcastGlobalVariablesCallback` calls it at the end of each epoch of
    `fit`, `join` and `Join` at their ends, and `Checkpoint.save` before it saves.

    A `tf.train.Checkpoint` with the optimizer has the counters, what the round began with, and the outer
    optimizer; a file of Keras has none of them.

    Args:
        optimizer: of Keras 3, of Keras 2 (`tf.keras.optimizers` and its `legacy`, up to TensorFlow 2.15), or
            of `tf_keras`; a LossScaleOptimizer or one that is inside one. It trains one list of variables.
        every: the number of steps from one averaging to the next, the same on all ranks. With Keras 3's
            `gradient_accumulation_steps`, only those count that apply something.
        outer: another optimizer for DiLoCo; None to go on with the averages.

    Returns:
        The optimizer.

    Raises:
        TypeError: `optimizer` or `outer` is not such an optimizer, or `every` is not an integer.
        ValueError: `every` is less than 1; an optimizer is wrapped already, or has `use_ema`.
        RuntimeError: in v1 graphs, or in the scope of `tf_smddp.distribute.Strategy`. Steps and `synchronize`
            raise it if ranks have taken different numbers of steps, or pass another `every`.
    """
    try:
        every = operator.index(every)
    except TypeError:
        raise TypeError(f"LocalSGD needs `every` as a number of steps, but got {every!r}.") from None
    if every < 1:
        raise ValueError(f"LocalSGD needs every >= 1, but got {every}.")
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise RuntimeError("LocalSGD does not work in v1 graphs. Use DistributedOptimizer.")
    _refuse_in_strategy()
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for each in (optimizer, inner) if outer is None else (optimizer, inner, outer):
        if not any(has_ancestor(each, name) for name in _KINDS):
            raise TypeError(f"LocalSGD takes optimizers of tf.keras, keras or tf_keras, but got {each!r}.")
        if reduces(each):
            raise ValueError(
                f"LocalSGD got {each!r}, which DistributedOptimizer or LocalSGD has wrapped. Wrap it once."
            )
        if getattr(each, "use_ema", False):
            raise ValueError(
                "LocalSGD does not take an optimizer with use_ema=True: Keras would put this rank's own "
                "moving averages in the place of the weights of all ranks."
            )
    if hasattr(outer, "inner_optimizer"):
        raise TypeError("LocalSGD needs no LossScaleOptimizer as `outer`: its gradients are not scaled.")
    watch_fits(type(inner))
    is_keras3 = has_ancestor(inner, "BaseOptimizer")
    _extend_loss_scale_optimizers(inner, is_keras3)
    make_distributed(inner, _Keras3 if is_keras3 else _Keras2, _State(every, outer))
    state_of(inner).track(inner)
    return optimizer


class _State:
    """What an optimizer has in addition to the plain one's."""

    def __init__(self, every: int, outer: Any):
        self._every, self._outer = every, outer
        self._variables: List[Any] = []  # those that are averaged
        self._is_in_step = self._is_compared = False
        # What checkpoints have.
        self._kept = tf.Module()
        with tf.init_scope():
            self.steps = self._kept.steps = tf.Variable(0, trainable=False, dtype=tf.int64)
            self.rounds = self._kept.rounds = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._kept.outer = outer
        _states.add(self)

    def copy(self) -> _State:
        """Returns the state of another optimizer, which averages in the same way."""
        return _State(self._every, self._outer and self._outer.from_config(self._outer.get_config()))

    def track(self, optimizer: Any) -> None:
        """Has checkpoints of the optimizer contain this."""
        optimizer._track_trackable(self._kept, _CHECKPOINT_NAME, overwrite=True)
        optimizer._handle_deferred_dependencies(_CHECKPOINT_NAME, self._kept)

    def variables(self, trained: Sequence[Any]) -> List[Any]:
        """Returns what checkpoints have, for an optimizer that trains these variables."""
        self._build(trained)
        return [self.steps, self.rounds, *self._start, *optimizer_variables(self._outer, self._start)]

    def step(self, optimizer: Any, variables: Sequence[Any], apply: Callable[[], Any]) -> Any:
        """Calls `apply`, which applies one step to these variables. Collective in every `every`-th step."""
        if self._is_in_step or not variables:
            return apply()
        self._prepare(optimizer, variables)
        passes = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        if self._start:
            tf.cond(tf.equal(self.steps, 0), self._begin_round, lambda: False)
        self._is_in_step = True
        try:
            result = apply()
        finally:
            self._is_in_step = False
        tf.cond(self.steps.assign_add(1) >= self._every * passes, self._average, lambda: False)
        return result

    def synchronize(self) -> None:
        """Averages the weights, unless that is done. Collective, outside of a `tf.function`."""
        self._check_that_ranks_agree(f"{_CALLER}.synchronize")
        if self.steps > 0:
            self._average()

    def weights(self) -> List[tf.Tensor]:
        """Returns the values of the weights."""
        return [tf.identity(tf.convert_to_tensor(each)) for each in self._variables]

    def set_weights(self, values: Sequence[tf.Tensor]) -> None:
        """Sets the weights to such values."""
        for variable, value in zip(self._variables, values):
            variable.assign(value)

    def warn_if_apart(self) -> None:
        """Warns if the weights are not averaged. On rank 0, at the end of the job."""
        steps, rounds = int(self.steps), int(self.rounds)
        if steps > 0:
            warnings.warn(
                f"LocalSGD: the job has ended {steps} steps after the weights were averaged (every "
                f"{self._every} steps, and {rounds} times in all), so each rank has weights of its own. Call "
                "synchronize() on the optimizer before you evaluate or save them.",
                stacklevel=2,
            )

    def _prepare(self, optimizer: Any, variables: Sequence[Any]) -> None:
        check_call_site(_CALLER)
        _refuse_in_strategy()
        self._build(variables)
        gradient_use.note_optimizer(self._variables, _CALLER)
        gradient_use.note_averaging(self._variables, self.steps)
        warn_within_fit()
        with tf.init_scope():
            if not self._is_compared:
                self.track(optimizer)
                self._check_that_ranks_agree(_CALLER)
                self._is_compared = True
            if self.steps > 0:  # each rank may have restored weights of its own
                note_equal(self._variables)
            else:  # after a round, each rank has a state of its own
                make_equal(self._variables, _CALLER, optimizer if self.rounds == 0 else None)
        before_eager_reduction()

    def _build(self, variables: Sequence[Any]) -> None:
        """Makes the variables, unless they are there."""
        found = [each for each in variables if not _is_overwritten(each)]
        gradient_use.note_apart(filter(_is_overwritten, variables))
        if not self._variables:
            self._variables = found
            with tf.init_scope():
                self._start = self._kept.start = [
                    tf.Variable(tf.convert_to_tensor(each), trainable=False)
                    for each in found
                    if self._outer is not None
                ]
                optimizer_variables(self._outer, self._start)
        elif [id(unwrapped(each)) for each in found] != [id(unwrapped(each)) for each in self._variables]:
            raise ValueError(
                f"LocalSGD averages the {len(self._variables)} variables of the optimizer's first step, and "
                f"this step has {len(found)} other ones, or another order. Use an optimizer for each list of "
                "variables, and a new one after a layer was frozen."
            )

    def _begin_round(self) -> bool:
        for start, value in zip(self._start, self.weights()):
            start.assign(value)
        return True

    def _average(self) -> bool:
        """Collective."""
        meanings = [
            op_parts.gradient(place, number_of_variable(each)) for place, each in enumerate(self._variables)
        ]
        means = allreduce_group(
            self.weights(),
            [source_label(each) for each in self._variables],
            Compression.none,
            ReduceOp.AVERAGE,
            f"{_CALLER}_Allreduce",
            WORLD,
            caller=_CALLER,
            meanings=meanings,
        )
        if self._start:
            gradients = [start - mean for start, mean in zip(self._start, means)]
            self._outer.apply_gradients(list(zip(gradients, self._start)))
            means = [tf.convert_to_tensor(each) for each in self._start]
        self.set_weights(means)
        self.steps.assign(0)
        self.rounds.assign_add(1)
        return True

    def _check_that_ranks_agree(self, caller: str) -> None:
        """Collective; raises a RuntimeError on all ranks if they do not count alike."""
        with immediately(caller):
            mine = [runtime.rank(), self._every, int(self.rounds), int(self.steps)]
            of_all = allgather(np.array([mine], np.int64)).numpy()
        if (of_all[:, 1:] != of_all[0, 1:]).any():
            listed = "; ".join(
                f"rank {rank}: {steps} steps after averaging number {rounds}, every={every}"
                for rank, every, rounds, steps in of_all
            )
            raise RuntimeError(
                f"LocalSGD: the ranks do not count alike ({listed}). All need the same `every`, and equally "
                "many batches, or the loop in join(); and what one restores, all must restore."
            )


class _Keras2(Averages):
    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return _apply_gradients(super().apply_gradients, self, *args, **kwargs)  # type: ignore[misc]


class _Keras3(Averages):
    def apply(self, *args: Any, **kwargs: Any) -> Any:
        return _apply(super().apply, self, *args, **kwargs)  # type: ignore[misc]


def _apply_gradients(plain: Any, optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
    pairs = list(grads_and_vars)
    return _step(optimizer, [each for _, each in pairs], functools.partial(plain, pairs, *args, **kwargs))


def _apply(plain: Any, optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    given = None if trainable_variables is None else list(trainable_variables)
    variables = optimizer._trainable_variables if given is None else given
    return _step(optimizer, variables, functools.partial(plain, list(grads), given))


def _step(optimizer: Any, variables: Sequence[Any], apply: Callable[[], Any]) -> Any:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return state_of(inner).step(inner, variables, apply) if isinstance(inner, Averages) else apply()


def _extend_loss_scale_optimizers(optimizer: Any, is_keras3: bool) -> None:
    """Has those of the optimizer's Keras take steps as this module's classes do, around inner optimizers."""
    for name in {ancestor.__module__.partition(".")[0] for ancestor in type(optimizer).__mro__}:
        if name in ("keras", "tf_keras"):
            package = importlib.import_module(name)
            if is_keras3:
                _extend(package.optimizers.LossScaleOptimizer, "apply", _apply)
            else:
                for kind in package.mixed_precision.LossScaleOptimizer.__subclasses__():
                    _extend(kind, "apply_gradients", _apply_gradients)


@functools.cache
def _extend(kind: Any, method: str, around: Callable[..., Any]) -> None:
    plain = getattr(kind, method)

    @functools.wraps(plain)
    def extended(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(plain, self), self, *args, **kwargs)

    setattr(kind, method, extended)
    kind.synchronize = lambda self: self.inner_optimizer.synchronize()


def states_in(objects: Sequence[Any]) -> List[_State]:
    """Returns the states of the optimizers that average, among optimizers and those of models."""
    found: List[_State] = []
    for optimizer in optimizers_in(objects):
        if isinstance(optimizer, Averages) and state_of(optimizer) not in found:
            found.append(state_of(optimizer))
    return found


def synchronize_all(objects: Sequence[Any]) -> None:
    """Averages the weights that such optimizers train, unless that is done. Collective."""
    for state in states_in(objects):
        state.synchronize()


def after_join(objects: Sequence[Any], share: Callable[[], Any]) -> Any:
    """Calls `share`, which gives all ranks the variables of the last one, and then averages. Collective.

    A rank that was at the end of its data before the last averaging has older weights. It takes the last
    rank's, so that the mean is over what the others have done since.

    Returns:
        What `share` returns.
    """
    before = [(state, int(state.rounds), state.weights()) for state in states_in(objects)]
    result = share()
    for state, rounds, weights in before:
        if rounds == int(state.rounds):
            state.set_weights(weights)
        state.synchronize()
    return result


def _is_overwritten(variable: Any) -> bool:
    """Whether its "gradient" is its next value: the scales of float8, which each rank has for itself."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _refuse_in_strategy() -> None:
    if hasattr(tf.distribute.get_strategy(), "reduces_over_ranks"):
        raise RuntimeError(
            "LocalSGD trains each rank by itself, and tf_smddp.distribute.Strategy reduces gradients in each "
            "step. Take away LocalSGD, or the strategy."
        )


_states: weakref.WeakSet[_State] = weakref.WeakSet()


def _at_shutdown() -> None:
    if runtime.rank() == 0 and runtime.size() > 1 and tf.executing_eagerly():
        for state in list(_states):
            state.warn_if_apart()


runtime.before_shutdown.append(_at_shutdown)
