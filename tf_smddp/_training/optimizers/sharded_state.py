"""Optimizers of Keras with sharded state, and their checkpoints.

A slot of theirs is as large as this rank's part of its variable. A checkpoint and a file of Keras have the
whole state, as the plain optimizer's, so they load with any number of ranks, sharded or not. Saving gathers
the parts, and so it is collective.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List

import tensorflow as tf

from smddp import runtime
from tf_smddp._base.arguments import PART, is_part, source_label, unwrapped
from tf_smddp._collectives.allgather import allgather_op
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._training.optimizers import keras2, keras3
from tf_smddp._training.optimizers.arguments import Pairs, Reduction
from tf_smddp._training.optimizers.reclassing import state_of
from tf_smddp._training.optimizers.sharding import Part, ShardedReduction

# Keras's optimizers whose update of an element depends on this element alone.
_BY_ELEMENTS = "SGD", "RMSprop", "Adam", "AdamW", "Adamax", "Nadam", "Adagrad", "Adadelta", "Ftrl", "Lion"
_KERAS = "keras", "tf_keras"
_VALUE = "VARIABLE_VALUE"  # the name that a checkpoint has for the value of a variable
_IS_SLOT = "_tf_smddp_slot"  # set on a variable

# The whole values of slots within `whole_state()`, by id.
_whole: Dict[int, Any] = {}


def shard(optimizer: Any, reduction: Reduction) -> Reduction:
    """Returns a reduction for an optimizer of Keras whose state is sharded.

    Raises:
        ValueError: the optimizer has state already, which is not sharded.
    """
    if getattr(optimizer, "_built", False) or getattr(optimizer, "built", False):
        raise ValueError(
            f"DistributedOptimizer: shard_state=True comes too late for {optimizer!r}, which has state "
            "already. Wrap a new optimizer, and then load what was saved."
        )
    kind = type(optimizer)
    _save_whole_state([each for each in kind.__mro__ if "save_own_variables" in vars(each)][-1])
    by_elements = kind.__name__ in _BY_ELEMENTS and kind.__module__.partition(".")[0] in _KERAS
    return ShardedReduction(**{**vars(reduction), "by_elements": by_elements})


class _OneByOne(list):
    """A list of variables; a loop over it notes the one that it is at."""

    def __init__(self, variables: Iterable[Any], at: List[Any]) -> None:
        super().__init__(variables)
        self._at = at

    def __iter__(self) -> Iterator[Any]:
        for variable in super().__iter__():
            self._at[:] = [variable]
            yield variable
        self._at.clear()


def _make_slot(
    reduction: ShardedReduction, part: Part, shape: tf.TensorShape, make: Callable[[], Any]
) -> Any:
    """Returns what `make` returns, a slot for a part. A checkpoint has the whole slot, of this shape."""

    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        slot = next_creator(**kwargs)
        setattr(slot, _IS_SLOT, True)
        if not part.is_everyones:
            setattr(slot, PART, (reduction, part, shape))
            # TensorFlow asks the variable itself for these.
            slot._serialize_to_tensors = functools.partial(_serialize, slot)
            slot._restore_from_tensors = functools.partial(_restore, slot)
            slot._copy_trackable_to_cpu = functools.partial(_refuse, part)
            slot._export_to_saved_model_graph = functools.partial(_refuse, part)
        return slot

    # Before the optimizer keeps it: what a checkpoint has for it is restored then.
    with tf.init_scope(), tf.variable_creator_scope(create):
        return make()


def _whole_slot(slot: Any) -> tf.Tensor:
    """Returns the whole of a slot. Collective, eager."""
    if id(slot) in _whole:
        return _whole[id(slot)]
    reduction, part, shape = getattr(slot, PART)
    if not tf.executing_eagerly():
        _refuse(part)
    # Without the numbers that Keras counts in the process.
    name = f"the state that all ranks must save together, {re.sub('_[0-9]+', '', slot.name)}"
    (value,) = allgather_op(
        [tf.reshape(slot, [-1])],
        tickets.draw_ticket(reduction.communicator),
        [op_parts.NAMED + name],
        "ShardedState",
        reduction.communicator,
    )
    return tf.reshape(value[: shape.num_elements()], shape)


def _refuse(part: Part, *_: Any, **__: Any) -> None:
    raise RuntimeError(
        f"the optimizer's state for {source_label(part.whole)!r} is sharded, and cannot be saved within a "
        "graph, as for a SavedModel, or asynchronously. Save the model without its optimizer, or use "
        "tf_smddp.Checkpoint."
    )


def _serialize(slot: Any) -> Dict[str, Any]:
    """As a variable's `_serialize_to_tensors`, with the whole value."""
    (plain,) = type(slot)._serialize_to_tensors(slot).values()
    read = functools.partial(_whole_slot, slot)
    return {_VALUE: type(plain)(read, dtype=plain.dtype, device=plain.device)}


def _restore(slot: Any, restored: Dict[str, Any]) -> Any:
    """As a variable's `_restore_from_tensors`, of the whole value."""
    reduction, part, shape = getattr(slot, PART)
    value = reduction.part_of_value(restored[_VALUE], part, shape)
    return type(slot)._restore_from_tensors(slot, {_VALUE: value})


@contextlib.contextmanager
def whole_state(*objects: Any) -> Iterator[None]:
    """Within it, rank 0 alone can save these, and the sharded optimizers in them. Collective, eager."""
    try:
        found = (each for root in objects for each in tf.train.TrackableView(root).descendants())
        for slot in map(unwrapped, found):
            if not is_part(slot) or id(slot) in _whole:
                continue
            value = _whole_slot(slot)
            with tf.device("/device:CPU:0"):
                _whole[id(slot)] = tf.identity(value) if runtime.rank() == 0 else value[:0]
        yield
    finally:
        _whole.clear()


@contextlib.contextmanager
def _read_whole(optimizer: Any) -> Iterator[None]:
    """Within it, `numpy()` of the optimizer's slots returns the whole ones. Collective."""
    slots = [slot for slot in map(unwrapped, _variables_of(optimizer)) if is_part(slot)]
    for slot in slots:
        slot.numpy = lambda slot=slot: _whole_slot(slot).numpy()
    try:
        yield
    finally:
        for slot in slots:
            del slot.numpy


def _variables_of(optimizer: Any) -> List[Any]:
    found = getattr(optimizer, "variables", ())
    return list(found() if callable(found) else found)


@functools.cache
def _save_whole_state(kind: Any) -> None:
    """Extends Keras's own base class of optimizers, and what it writes to HDF5.

    A LossScaleOptimizer around a sharded optimizer saves the variables of both, and does not know that they
    are parts.
    """
    plain_save, plain_load = kind.save_own_variables, kind.load_own_variables

    @functools.wraps(plain_save)
    def save_own_variables(self: Any, store: Any) -> None:
        with _read_whole(self):
            plain_save(self, store)

    @functools.wraps(plain_load)
    def load_own_variables(self: Any, store: Any) -> None:
        variables = _variables_of(self)
        if len(store.keys()) == len(variables):  # else Keras warns
            store = {str(i): _part_of_value(store[str(i)], each) for i, each in enumerate(variables)}
        plain_load(self, store)

    kind.save_own_variables, kind.load_own_variables = save_own_variables, load_own_variables
    is_keras3 = kind.__name__ == "BaseOptimizer"
    writer = "legacy.saving.legacy_h5_format" if is_keras3 else "saving.legacy.hdf5_format"
    hdf5: Any = importlib.import_module(f"{kind.__module__.partition('.')[0]}.src.{writer}")
    plain_hdf5 = hdf5.save_optimizer_weights_to_hdf5_group

    @functools.wraps(plain_hdf5)
    def save_to_hdf5(group: Any, optimizer: Any) -> None:
        with _read_whole(optimizer):
            plain_hdf5(group, optimizer)

    hdf5.save_optimizer_weights_to_hdf5_group = save_to_hdf5


def _part_of_value(value: Any, variable: Any) -> Any:
    """Returns what a variable of an optimizer gets of a whole value."""
    reduction, part, shape = getattr(unwrapped(variable), PART, (None, None, None))
    return value if reduction is None else reduction.part_of_value(value, part, shape)


class _Sharded:
    """The part that the mixins of Keras 2 and Keras 3 have in common, in front of theirs."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "An optimizer with sharded state cannot be copied. Copy the plain one, and wrap each copy."
        )

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(4)

    def build(self, variables: Any) -> None:
        """As the plain optimizer's."""
        reduction: ShardedReduction = state_of(self).reduction
        wholes = [reduction.part_of(variable).whole for variable in variables]
        super().build(_OneByOne(wholes, reduction.at))  # type: ignore[misc]
        known = (self.iterations, self._learning_rate, *wholes)  # type: ignore[attr-defined]
        ids = {id(unwrapped(each)) for each in known}
        is_kerass = self.__class__.__module__.partition(".")[0] in _KERAS
        for variable in map(unwrapped, tf.train.TrackableView(self).descendants()):
            if not isinstance(variable, tf.Variable) or hasattr(variable, _IS_SLOT) or id(variable) in ids:
                continue
            # The numbers of Keras's own optimizers are equal on all ranks.
            if variable.shape.rank or not is_kerass:
                raise ValueError(
                    f"shard_state=True is not for {type(self).__name__}, which has state that belongs to no "
                    f"variable ({variable.name})."
                )

    def add_variable(self, shape: Any = (), *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's. What build() adds while it goes through the variables is a slot, too."""
        reduction: ShardedReduction = state_of(self).reduction
        plain = super().add_variable  # type: ignore[misc]
        part = reduction.part_of(reduction.at[0]) if reduction.at else None
        if not shape or part is None or part.is_cut:
            return plain(shape, *args, **kwargs)
        own = [0] * len(shape) if part.own is not part.whole else shape
        return _make_slot(reduction, part, tf.TensorShape(shape), lambda: plain(own, *args, **kwargs))

    def add_variable_from_reference(self, *args: Any, **kwargs: Any) -> Any:
        """As the plain optimizer's, for this rank's part of the variable."""
        reduction: ShardedReduction = state_of(self).reduction
        plain, key = super().add_variable_from_reference, "reference_variable"  # type: ignore[misc]
        if "model_variable" in kwargs:  # Keras 2
            key = "model_variable"
        reference, rest = (args[0], args[1:]) if args else (kwargs.pop(key), ())
        part = reduction.part_of(reference)
        value = kwargs.get("initial_value")
        if value is not None and not part.is_everyones and value.shape != part.own.shape:
            kwargs["initial_value"] = reduction.part_of_value(value, part)
        at, reduction.at[:] = list(reduction.at), []  # Keras 3's calls add_variable
        slot = _make_slot(
            reduction, part, unwrapped(part.whole).shape, lambda: plain(part.own, *rest, **kwargs)
        )
        reduction.at[:] = at
        return slot

    def _var_key(self, variable: Any) -> Any:
        return super()._var_key(state_of(self).reduction.part_of(variable).whole)  # type: ignore[misc]

    def _update_model_variables_moving_average(self, variables: Any) -> None:
        super()._update_model_variables_moving_average(_own(self, variables))  # type: ignore[misc]

    def _overwrite_model_variables_with_average_value(self, variables: Any) -> None:
        super()._overwrite_model_variables_with_average_value(_own(self, variables))  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        for limit, is_global in ((self.clipnorm, False), (self.global_clipnorm, True)):  # type: ignore[attr-defined]
            if limit and limit > 0:  # as Keras does it
                return state_of(self).reduction.clip(grads, limit, is_global)
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def finalize_variable_values(self, var_list: Any) -> None:
        """As the plain optimizer's. Collective."""
        super().finalize_variable_values(var_list)  # type: ignore[misc]
        if self.use_ema:  # type: ignore[attr-defined]
            reduction: ShardedReduction = state_of(self).reduction
            reduction.gather([reduction.part_of(variable) for variable in var_list])


def _own(optimizer: Any, variables: Any) -> List[Any]:
    return [state_of(optimizer).reduction.part_of(variable).own for variable in variables]


class Keras2(_Sharded, keras2.Keras2):
    """The mixin for the optimizers of Keras 2."""


class Keras3(_Sharded, keras3.Keras3):
    """The mixin for the optimizers of Keras 3."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """As the plain optimizer's, with the gradients reduced over all ranks. Collective.

        With `gradient_accumulation_steps`, each step is reduced, so that what is accumulated is a part, too.
        """
        state, plain_apply = state_of(self), super().apply
        given = self._trainable_variables if trainable_variables is None else trainable_variables  # type: ignore[attr-defined]
        variables = [state.reduction.part_of(variable).whole for variable in given]
        grads, steps = list(grads), self.gradient_accumulation_steps  # type: ignore[attr-defined]
        if not state.is_reduced:
            state.reduction.prepare(variables, self)
            grads = keras3.reduce(state.reduction, grads, variables)
        count = tf.convert_to_tensor(self._iterations) + 1  # type: ignore[attr-defined]
        # Averages may overwrite the weights in a step that only accumulates.
        overwrites = self.use_ema and self.ema_overwrite_frequency  # type: ignore[attr-defined]
        is_step = tf.equal(count % steps, 0) if steps and not overwrites else None

        def apply_parts(pairs: Pairs) -> None:
            with keras3.already_reduced(self):
                plain_apply([gradient for gradient, _ in pairs], [own for _, own in pairs])

        # Keras averages all that it trains, in each step.
        averaged = self._trainable_variables if self.use_ema else ()  # type: ignore[attr-defined]
        state.reduction.apply(list(zip(grads, variables)), apply_parts, is_step, averaged)
