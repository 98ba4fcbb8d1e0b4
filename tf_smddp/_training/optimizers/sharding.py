"""Sharded optimizer state: each rank has the state of a part of each variable, and updates that part.

This is stage 1 of ZeRO (Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054), with the sharded weight
update of Xu et al. 2020 (https://arxiv.org/abs/2004.13336). A step of n ranks:

    reduce-scatter   each rank gets its part of the mean gradient
    update           the plain optimizer updates the rank's part of the variable; its slots have that size
    allgather        each rank gets all parts of the variable

A variable is flattened, filled up to a multiple of n, and cut into n equal parts. So the ranks share the work
on each variable, and none of them waits for another. The plain optimizer works on a variable of ours, which
holds this rank's part. It is set anew before each update, since the user may assign to the variable.

An optimizer that looks at a whole variable, such as LAMB, cannot work on a part. With such a one, a rank owns
whole variables: gradients are allreduced, the owner updates, and the other ranks have an empty part. Small
variables, and those with a constraint, are updated by all ranks.

A checkpoint has the whole state, as the plain optimizer's. Saving gathers the parts, so it is collective.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import tensorflow as tf

from smddp import ReduceOp, runtime
from smddp.process_sets import communicator_of, process_set_of
from tf_smddp._base.arguments import PART, source_label, unwrapped
from tf_smddp._collectives.allgather import allgather_op
from tf_smddp._collectives.allreduce import allreduce_group, as_dense, check_reducible
from tf_smddp._collectives.broadcast import broadcast_op
from tf_smddp._collectives.compression import Compression, compressor_around_op
from tf_smddp._collectives.reducescatter import reducescatter_op
from tf_smddp._collectives.scaling import NONE
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._guards import gradient_use
from tf_smddp._guards.start_weights import number_of_variable
from tf_smddp._training.optimizers import keras2, keras3
from tf_smddp._training.optimizers.arguments import Pairs, Reduction
from tf_smddp._training.optimizers.reclassing import state_of

# Keras's optimizers whose update of an element depends on this element alone.
_BY_ELEMENTS = "SGD", "RMSprop", "Adam", "AdamW", "Adamax", "Nadam", "Adagrad", "Adadelta", "Ftrl", "Lion"
_SMALL = 4096  # elements; all ranks update a variable that has fewer
_CALLER = "DistributedOptimizer"
_VALUE = "VARIABLE_VALUE"  # the name that a checkpoint has for the value of a variable

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
            "already. Wrap a new optimizer, and then load the checkpoint."
        )
    kind = type(optimizer)
    by_elements = kind.__name__ in _BY_ELEMENTS and kind.__module__.split(".")[0] in ("keras", "tf_keras")
    return ShardedReduction(**{**vars(reduction), "by_elements": by_elements})


@dataclasses.dataclass(frozen=True)
class Part:
    """This rank's part of a variable."""

    whole: Any  # the user's variable
    own: Any  # what the plain optimizer updates: a variable of ours, or `whole` itself
    is_cut: bool = False
    owner: Optional[int] = None  # the rank that updates all of it

    @property
    def is_everyones(self) -> bool:
        """Whether all ranks update all of it."""
        return not self.is_cut and self.owner is None

    @property
    def count(self) -> int:
        """The number of elements of the variable."""
        return int(unwrapped(self.whole).shape.num_elements())


@dataclasses.dataclass(frozen=True)
class ShardedReduction(Reduction):
    """A Reduction that gives this rank the parts of the gradients that it applies.

    Attributes:
        by_elements: whether variables are cut; else a rank owns whole ones.
    """

    by_elements: bool = True
    _parts: Dict[int, Part] = dataclasses.field(default_factory=dict, compare=False)  # by id
    # Those of all variables, by id.
    slots: Dict[int, tf.Variable] = dataclasses.field(default_factory=dict, compare=False)
    _loads: Dict[int, int] = dataclasses.field(default_factory=dict, compare=False)  # elements, by owner
    _applied: List[Part] = dataclasses.field(default_factory=list, compare=False)  # those of the gradients

    @property
    def _communicator(self) -> int:
        return communicator_of(self.process_set, _CALLER)

    def part_of(self, variable: Any) -> Part:
        """Returns the part of a variable, whether `whole` or `own` is given."""
        key = id(unwrapped(variable))
        if key not in self._parts:
            part = self._make_part(variable)
            self._parts[key] = self._parts[id(unwrapped(part.own))] = part
        return self._parts[key]

    def _make_part(self, variable: Any) -> Part:
        if tickets.pairs_by_name():
            raise RuntimeError("DistributedOptimizer: shard_state=True is not for graphs of TensorFlow 1.")
        members, found = process_set_of(self._communicator), unwrapped(variable)
        count = found.shape.num_elements()
        if (
            members.size() == 1
            or not count
            or count < _SMALL
            or getattr(variable, "constraint", None) is not None
            or getattr(variable, "overwrite_with_gradient", False)
        ):
            return Part(variable, variable)
        owner = None
        if not self.by_elements:
            owner = min(members.ranks, key=lambda rank: self._loads.get(rank, 0))
            self._loads[owner] = self._loads.get(owner, 0) + count
            if owner == runtime.rank():
                return Part(variable, variable, owner=owner)
        with tf.init_scope(), tf.device(found.device):
            value = tf.zeros([0], found.dtype) if owner is not None else self._cut(found, count)
            own = tf.Variable(value, trainable=False, name=found.name.split(":")[0])
        if hasattr(variable, "path"):  # Keras 3 names slots after it
            own.path = variable.path
        return Part(variable, own, owner is None, owner)

    def _cut(self, tensor: Any, count: int) -> tf.Tensor:
        """Returns this rank's part of a tensor that is as large as its variable."""
        members = process_set_of(self._communicator)
        length = -(-count // members.size())
        begin = min(count, length * members.rank())
        end = min(count, begin + length)
        return tf.pad(tf.reshape(tensor, [-1])[begin:end], [[0, length - (end - begin)]])

    def part_of_value(self, tensor: Any, part: Part) -> tf.Tensor:
        """Returns this rank's part of a tensor that is as large as the part's variable.

        Raises:
            ValueError: it is not as large.
        """
        tensor = tf.convert_to_tensor(tensor)
        if tensor.shape.num_elements() != part.count:
            raise ValueError(
                f"a value for {source_label(part.whole) or 'a variable'} has shape {tensor.shape}, and not "
                f"{unwrapped(part.whole).shape}."
            )
        if part.is_cut:
            return self._cut(tensor, part.count)
        return tensor if part.own is part.whole else tf.zeros([0], tensor.dtype)

    def like(self, total: tf.Tensor, variable: Any) -> tf.Tensor:
        """See the base class."""
        return self.part_of_value(total, self.part_of(variable))

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any], op: ReduceOp) -> List[Any]:
        if op is not self.op or len(variables) != len(gradients):
            return super()._reduce(gradients, variables, op)
        parts = [self.part_of(variable) for variable in variables]
        cut = [i for i, part in enumerate(parts) if part.is_cut and gradients[i] is not None]
        gradient_use.note_gradients(gradients, variables)
        rest = [None if i in cut else gradient for i, gradient in enumerate(gradients)]
        reduced = super()._reduce(rest, variables, op)
        for i, part in enumerate(parts):
            if part.owner is not None and part.own is not part.whole and reduced[i] is not None:
                reduced[i] = _nothing_of(reduced[i])
        compressor = compressor_around_op(self.compression)
        compressed = [compressor.compress(as_dense(gradients[i], _CALLER)) for i in cut]
        labels = [
            op_parts.gradient(i, number_of_variable(variables[i])) + source_label(variables[i]) for i in cut
        ]
        size = process_set_of(self._communicator).size()
        flat = []
        for i, (tensor, _) in zip(cut, compressed):
            check_reducible(tensor, op, NONE, _CALLER)
            flat.append(tf.pad(tf.reshape(tensor, [-1]), [[0, -parts[i].count % size]]))
        scattered = _in_groups(
            flat,
            labels,
            lambda tensors, names: reducescatter_op(
                tensors,
                tickets.draw_ticket(self._communicator),
                op,
                names,
                f"{self.node_name}_Reducescatter",
                self._communicator,
            ),
        )
        for i, result, (_, context) in zip(cut, scattered, compressed):
            result.set_shape(parts[i].own.shape)
            reduced[i] = compressor.decompress(result, context)
        return reduced

    def apply(self, pairs: Pairs, plain_apply: Callable[[Pairs], Any], is_step: Any = None) -> Any:
        """See the base class. Collective. Takes parts of gradients, or whole ones that need no reduction."""
        parts = [self.part_of(variable) for _, variable in pairs]
        for part in parts:
            if part.is_cut:
                part.own.assign(self._cut(unwrapped(part.whole), part.count))
        own = [
            (self._part_of_gradient(gradient, part), part.own) for (gradient, _), part in zip(pairs, parts)
        ]
        self._applied[:] = [
            part
            for (gradient, _), part in zip(pairs, parts)
            if gradient is not None and not getattr(part.whole, "overwrite_with_gradient", False)
        ]
        result = plain_apply(own)
        if is_step is None:
            self.gather(parts)
        else:
            tf.cond(is_step, lambda: self.gather(parts), lambda: None)
        return result

    def _part_of_gradient(self, gradient: Any, part: Part) -> Any:
        if gradient is None or part.is_everyones:
            return gradient
        is_part = not isinstance(gradient, tf.IndexedSlices) and gradient.shape == part.own.shape
        return gradient if is_part else self.part_of_value(gradient, part)

    def gather(self, parts: Sequence[Part]) -> None:
        """Gives all ranks the values of the variables. Collective."""
        cut = [part for part in parts if part.is_cut]
        gathered = _in_groups(
            [part.own.read_value() for part in cut],
            [source_label(part.whole) for part in cut],
            lambda tensors, names: allgather_op(
                tensors,
                tickets.draw_ticket(self._communicator),
                names,
                f"{self.node_name}_Allgather",
                self._communicator,
            ),
        )
        for part, value in zip(cut, gathered):
            found = unwrapped(part.whole)
            found.assign(tf.reshape(value[: part.count], found.shape))
        for part in parts:
            if part.owner is not None:
                found = unwrapped(part.whole)
                label, name = source_label(part.whole), f"{self.node_name}_Broadcast"
                found.assign(
                    broadcast_op(found.read_value(), part.owner, label, False, name, self._communicator)
                )

    def agree_on_finite(self, pairs: Pairs) -> Pairs:
        """See the base class. Collective."""
        known = [(i, gradient) for i, (gradient, _) in enumerate(pairs) if gradient is not None]
        if not known:
            return pairs
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for _, gradient in known])
        broken = self._sum([tf.where(finite, 0.0, float("nan"))])[0]
        i, gradient = next((i, gradient) for i, gradient in known if gradient.shape.num_elements() != 0)
        return [*pairs[:i], (gradient + tf.cast(broken, gradient.dtype), pairs[i][1]), *pairs[i + 1 :]]

    def clip(self, gradients: Sequence[Any], limit: float, is_global: bool) -> List[Any]:
        """Clips the gradients of the step by the norm of each whole one, or of all together. Collective.

        Args:
            gradients: this rank's parts of those that are not None.
            limit: the largest norm.
            is_global: whether it is that of all together.
        """
        parts = self._applied
        squares = [tf.reduce_sum(tf.square(tf.cast(each, tf.float32))) for each in gradients]
        shared = [i for i, part in enumerate(parts) if not part.is_everyones]
        for i, total in zip(shared, self._sum([squares[i] for i in shared])):
            squares[i] = total
        norms = [tf.sqrt(tf.add_n(squares))] * len(squares) if is_global else list(map(tf.sqrt, squares))
        return [
            each * tf.cast(limit / tf.maximum(norm, limit), each.dtype)
            for each, norm in zip(gradients, norms)
        ]

    def _sum(self, numbers: List[tf.Tensor]) -> List[tf.Tensor]:
        if not numbers:
            return []
        name = f"{self.node_name}_Norms"
        summed = allreduce_group(
            [tf.stack(numbers)], [name], Compression.none, ReduceOp.SUM, name, self._communicator
        )
        return tf.unstack(summed[0])

    def make_slot(self, part: Part, make: Callable[[], Any]) -> Any:
        """Returns what `make` returns, a slot for a part; a checkpoint has the slot of the whole variable."""

        def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
            slot = next_creator(**kwargs)
            self.slots[id(slot)] = slot
            if not part.is_everyones:
                setattr(slot, PART, (self, part))
                # TensorFlow asks the variable itself for these.
                slot._serialize_to_tensors = functools.partial(_serialize, slot)
                slot._restore_from_tensors = functools.partial(_restore, slot)
            return slot

        # Before the optimizer keeps it: what a checkpoint has for it is restored then.
        with tf.init_scope(), tf.variable_creator_scope(create):
            return make()

    def whole_slot(self, slot: Any, part: Part) -> tf.Tensor:
        """Returns the whole of a slot: a tensor of the variable's shape. Collective, eager."""
        if id(slot) in _whole:
            return _whole[id(slot)]
        label = source_label(part.whole)
        if not tf.executing_eagerly():
            raise RuntimeError(
                f"the optimizer's state for {label!r} is sharded, and cannot be saved within a graph, as for "
                "a SavedModel. Save the model without its optimizer, or use tf_smddp.Checkpoint."
            )
        # Without the numbers that Keras counts in the process.
        name = f"the state that all ranks must save together, {re.sub('_[0-9]+', '', slot.name)}"
        (value,) = allgather_op(
            [tf.reshape(slot, [-1])],
            tickets.draw_ticket(self._communicator),
            [op_parts.NAMED + name],
            "ShardedState",
            self._communicator,
        )
        return tf.reshape(value[: part.count], unwrapped(part.whole).shape)


def _nothing_of(reduced: Any) -> tf.Tensor:
    """Returns an empty tensor which a graph makes of `reduced`: else it would not run the reduction."""
    if op_parts.in_xla_context():
        return tf.zeros([0], reduced.dtype)
    first = tf.reshape(reduced, [-1])[:1]
    nothing = tf.boolean_mask(first, first > float("inf"))
    nothing.set_shape([0])
    return nothing


def _in_groups(
    tensors: Sequence[tf.Tensor],
    labels: Sequence[str],
    make: Callable[[List[tf.Tensor], List[str]], List[tf.Tensor]],
) -> List[tf.Tensor]:
    """Calls `make` for each tensor, so that each goes as soon as it is there; eagerly and in XLA for all."""
    if not tensors:
        return []
    if tf.executing_eagerly() or op_parts.in_xla_context():
        return make(list(tensors), list(labels))
    return [make([tensor], [label])[0] for tensor, label in zip(tensors, labels)]


def _serialize(slot: Any) -> Dict[str, Any]:
    """As a variable's `_serialize_to_tensors`, with the whole value."""
    (plain,) = type(slot)._serialize_to_tensors(slot).values()
    reduction, part = getattr(slot, PART)
    read = functools.partial(reduction.whole_slot, slot, part)
    return {_VALUE: type(plain)(read, dtype=plain.dtype, device=plain.device)}


def _restore(slot: Any, restored: Dict[str, Any]) -> Any:
    """As a variable's `_restore_from_tensors`, of the whole value."""
    reduction, part = getattr(slot, PART)
    value = reduction.part_of_value(restored[_VALUE], part)
    return type(slot)._restore_from_tensors(slot, {_VALUE: value})


@contextlib.contextmanager
def whole_state(checkpoint: tf.train.Checkpoint) -> Iterator[None]:
    """Within it, rank 0 alone can save a checkpoint with sharded optimizers. Collective, eager."""
    try:
        for slot in map(unwrapped, tf.train.TrackableView(checkpoint).descendants()):
            reduction, part = getattr(slot, PART, (None, None))
            if reduction is None or id(slot) in _whole:
                continue
            value = reduction.whole_slot(slot, part)
            with tf.device("/device:CPU:0"):
                _whole[id(slot)] = tf.identity(value) if runtime.rank() == 0 else value[:0]
        yield
    finally:
        _whole.clear()


class _Sharded:
    """The part that the mixins of Keras 2 and Keras 3 have in common, in front of theirs."""

    def build(self, variables: Any) -> None:
        """As the plain optimizer's."""
        reduction: ShardedReduction = state_of(self).reduction
        super().build([reduction.part_of(variable).whole for variable in variables])  # type: ignore[misc]
        for variable in map(unwrapped, self._variables):  # type: ignore[attr-defined]
            if variable.shape.rank and id(variable) not in reduction.slots:
                raise ValueError(
                    f"shard_state=True is not for {type(self).__name__}, which has state that belongs to no "
                    f"variable ({variable.name})."
                )

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
        return reduction.make_slot(part, lambda: plain(part.own, *rest, **kwargs))

    def _var_key(self, variable: Any) -> Any:
        return super()._var_key(state_of(self).reduction.part_of(variable).whole)  # type: ignore[misc]

    def _update_model_variables_moving_average(self, variables: Any) -> None:
        super()._update_model_variables_moving_average(_own(self, variables))  # type: ignore[misc]

    def _overwrite_model_variables_with_average_value(self, variables: Any) -> None:
        super()._overwrite_model_variables_with_average_value(_own(self, variables))  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        plain = super()._clip_gradients  # type: ignore[misc]
        norm, global_norm = self.clipnorm, self.global_clipnorm  # type: ignore[attr-defined]
        if not (norm or global_norm):
            return plain(grads)
        return state_of(self).reduction.clip(grads, norm or global_norm, bool(global_norm))

    def finalize_variable_values(self, var_list: Any) -> None:
        """As the plain optimizer's. Collective."""
        super().finalize_variable_values(var_list)  # type: ignore[misc]
        if self.use_ema:  # type: ignore[attr-defined]
            reduction: ShardedReduction = state_of(self).reduction
            reduction.gather([reduction.part_of(variable) for variable in var_list])

    def save_own_variables(self, store: Any) -> None:
        """As the plain optimizer's, with the whole state. Collective."""
        for i, variable in enumerate(self._variables):  # type: ignore[attr-defined]
            store[str(i)] = _value_of(variable).numpy()

    def load_own_variables(self, store: Any) -> None:
        """As the plain optimizer's, from the whole state."""
        variables = self._variables  # type: ignore[attr-defined]
        if len(store.keys()) != len(variables):
            super().load_own_variables(store)  # type: ignore[misc]  # it warns
            return
        for i, variable in enumerate(variables):
            reduction, part = getattr(unwrapped(variable), PART, (None, None))
            value = store[str(i)]
            variable.assign(reduction.part_of_value(value, part) if reduction else value)


def _own(optimizer: Any, variables: Any) -> List[Any]:
    return [state_of(optimizer).reduction.part_of(variable).own for variable in variables]


def _value_of(variable: Any) -> tf.Tensor:
    reduction, part = getattr(unwrapped(variable), PART, (None, None))
    return reduction.whole_slot(unwrapped(variable), part) if reduction else tf.convert_to_tensor(variable)


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
        is_step = tf.equal(count % steps, 0) if steps else None

        def apply_parts(pairs: Pairs) -> None:
            with keras3.already_reduced(self):
                plain_apply([gradient for gradient, _ in pairs], [own for _, own in pairs])

        state.reduction.apply(list(zip(grads, variables)), apply_parts, is_step)
