"""Sharded updates: each rank updates a part of each variable, and has the optimizer's state of that part.

This is stage 1 of ZeRO (Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054), with the sharded weight
update of Xu et al. 2020 (https://arxiv.org/abs/2004.13336). A step of n ranks:

    reduce-scatter   each rank gets its part of the mean gradient
    update           the plain optimizer updates the rank's part of the variable; its slots have that size
    allgather        each rank gets all parts of the variable

A variable is flattened, filled up to a multiple of n, and cut into n equal parts. So the ranks share the work
on each variable, and none of them waits for another. The plain optimizer works on a variable of ours, which
holds this rank's part. It is set anew before each update, since the user may assign to the variable.

An optimizer that looks at a whole variable, such as LAMB, cannot work on a part. With such a one, a rank owns
whole variables, and the other ranks have an empty part of them. Small variables, and those with a constraint,
are updated by all ranks.

sharded_state.py has the optimizers that do so, and their checkpoints.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Sequence, cast

import tensorflow as tf

from smddp import ReduceOp, runtime
from smddp.process_sets import communicator_of, process_set_of
from tf_smddp._base.arguments import source_label, unwrapped
from tf_smddp._collectives.allgather import allgather_op
from tf_smddp._collectives.allreduce import allreduce_group, as_dense, check_reducible
from tf_smddp._collectives.broadcast import broadcast_op
from tf_smddp._collectives.compression import Compression, compressor_around_op
from tf_smddp._collectives.reducescatter import reducescatter_op
from tf_smddp._collectives.scaling import NONE
from tf_smddp._graphs import op_parts, tickets
from tf_smddp._guards import gradient_use
from tf_smddp._guards.start_weights import number_of_variable
from tf_smddp._training.optimizers.arguments import Pairs, Reduction

_SMALL = 4096  # elements; all ranks update a variable that has fewer
_CALLER = "DistributedOptimizer"


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
    # The variable for which an optimizer makes its state, while its build() goes through them.
    at: List[Any] = dataclasses.field(default_factory=list, compare=False)
    _parts: Dict[int, Part] = dataclasses.field(default_factory=dict, compare=False)  # by id
    _loads: Dict[int, int] = dataclasses.field(default_factory=dict, compare=False)  # elements, by owner
    _applied: List[Part] = dataclasses.field(default_factory=list, compare=False)  # those of the gradients

    @property
    def communicator(self) -> int:
        """Of the ranks that take part."""
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
        members, found = process_set_of(self.communicator), unwrapped(variable)
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
            value = self._cut(found, count) if owner is None else _nothing(found.shape, found.dtype)
            own = tf.Variable(value, trainable=False, name=found.name.split(":")[0])
        if hasattr(variable, "path"):  # Keras 3 names slots after it
            own.path = variable.path
        return Part(variable, own, owner is None, owner)

    def _cut(self, tensor: Any, count: int) -> tf.Tensor:
        """Returns this rank's part of a tensor that is as large as its variable."""
        members = process_set_of(self.communicator)
        length = -(-count // members.size())
        begin = min(count, length * members.rank())
        end = min(count, begin + length)
        return tf.pad(tf.reshape(tensor, [-1])[begin:end], [[0, length - (end - begin)]])

    def part_of_value(self, tensor: Any, part: Part, shape: Optional[tf.TensorShape] = None) -> tf.Tensor:
        """Returns this rank's part of a tensor.

        Args:
            tensor: of the shape of the part's variable.
            part: the part.
            shape: that of the tensor, if it is not that of the variable. The part is not cut then.

        Raises:
            ValueError: it has another shape.
        """
        tensor = tf.convert_to_tensor(tensor)
        shape = unwrapped(part.whole).shape if shape is None else shape
        _check_shape("value", tensor, part, shape)
        if part.is_cut:
            return self._cut(tensor, part.count)
        return tensor if part.own is part.whole else _nothing(shape, tensor.dtype)

    def like(self, total: tf.Tensor, variable: Any) -> tf.Tensor:
        """See the base class."""
        return self.part_of_value(total, self.part_of(variable))

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any], op: ReduceOp) -> List[Any]:
        if op is not self.op or len(variables) != len(gradients):
            return super()._reduce(gradients, variables, op)
        parts = [self.part_of(variable) for variable in variables]
        shared = [i for i, part in enumerate(parts) if not part.is_everyones and gradients[i] is not None]
        gradient_use.note_gradients(gradients, variables)
        rest = [None if i in shared else gradient for i, gradient in enumerate(gradients)]
        reduced = super()._reduce(rest, variables, op)
        compressor = compressor_around_op(self.compression)
        compressed = [compressor.compress(as_dense(gradients[i], _CALLER)) for i in shared]
        labels = [
            op_parts.gradient(i, number_of_variable(variables[i])) + source_label(variables[i])
            for i in shared
        ]
        size = process_set_of(self.communicator).size()
        flat = []
        for i, (tensor, _) in zip(shared, compressed):
            check_reducible(tensor, op, NONE, _CALLER)
            _check_shape("gradient", tensor, parts[i], unwrapped(parts[i].whole).shape)
            fill = -parts[i].count % size if parts[i].is_cut else 0
            tensor = tf.reshape(tensor, [-1])
            flat.append(tf.pad(tensor, [[0, fill]]) if fill else tensor)

        def scatter(tensors: List[Any], ticket: Any, names: List[str], root: int, **place: Any) -> List[Any]:
            name = f"{self.node_name}_Reducescatter"
            return reducescatter_op(
                tensors, ticket, op, names, name, self.communicator, root_rank=root, **place
            )

        roots = [-1 if owner is None else owner for owner in (parts[i].owner for i in shared)]
        results = self._group(scatter, flat, labels, roots)
        for i, result, (_, context) in zip(shared, results, compressed):
            reduced[i] = compressor.decompress(tf.reshape(result, parts[i].own.shape), context)
        return reduced

    def _group(
        self,
        make: Callable[..., List[Any]],
        tensors: Sequence[tf.Tensor],
        labels: Sequence[str],
        roots: Sequence[int],
        ticket: Any = None,
    ) -> List[Any]:
        """Calls `make` for each tensor, so that each goes as soon as it is there, with one ticket.

        Eagerly and in XLA, it calls `make` once for all tensors with the same root. `ticket` is the group's,
        if it has been drawn.
        """
        is_graph = _is_plain_graph()
        ops: Dict[int, List[int]] = {}  # the numbers of the tensors of each
        for i, root in enumerate(roots):
            ops.setdefault(i if is_graph else root, []).append(i)
        results: Dict[int, Any] = {}
        for members in ops.values():
            place = {"param_index": members[0], "num_params": len(tensors)} if is_graph else {}
            if ticket is None or not is_graph:
                ticket = tickets.draw_ticket(self.communicator)
            some, names = [tensors[i] for i in members], [labels[i] for i in members]
            results.update(zip(members, make(some, ticket, names, roots[members[0]], **place)))
        return [results[i] for i in range(len(tensors))]

    def apply(
        self,
        pairs: Pairs,
        plain_apply: Callable[[Pairs], Any],
        is_step: Any = None,
        averaged: Sequence[Any] = (),
    ) -> Any:
        """See the base class. Collective. Takes parts of gradients, or whole ones that need no reduction.

        Args:
            pairs: gradients and variables.
            plain_apply: the plain optimizer's.
            is_step: whether this is the step that updates; None if each is.
            averaged: other variables that the plain optimizer reads or sets, too.
        """
        parts = [self.part_of(variable) for _, variable in pairs]
        changed = list({id(part): part for part in [*parts, *map(self.part_of, averaged)]}.values())
        for part in changed:
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
        ticket = None
        if is_step is None and _is_plain_graph() and not all(part.is_everyones for part in changed):
            # A ticket that is drawn after the updates waits for all of them. With this one, each part is
            # gathered when it is updated, beside the other updates and the rest of the backward pass.
            ticket = tickets.draw_ticket(self.communicator)
        result = plain_apply(own)
        if is_step is None:
            self.gather(changed, ticket)
        else:
            tf.cond(is_step, lambda: self.gather(changed), lambda: None)
        return result

    def _part_of_gradient(self, gradient: Any, part: Part) -> Any:
        if gradient is None or part.is_everyones:
            return gradient
        is_part = not isinstance(gradient, tf.IndexedSlices) and gradient.shape == part.own.shape
        return gradient if is_part else self.part_of_value(gradient, part)

    def gather(self, parts: Sequence[Part], ticket: Any = None) -> None:
        """Gives all ranks the values of the variables. Collective."""
        # XLA's allgather takes as many rows from each rank, and an owner has all of them.
        is_sent = [op_parts.in_xla_context() and part.owner is not None for part in parts]
        gathered = [part for part, sent in zip(parts, is_sent) if not (part.is_everyones or sent)]

        def allgather(tensors: List[Any], ticket: Any, names: List[str], _: int, **place: int) -> List[Any]:
            name = f"{self.node_name}_Allgather"
            return allgather_op(tensors, ticket, names, name, self.communicator, **place)

        own = [tf.reshape(unwrapped(part.own).read_value(), [-1]) for part in gathered]
        labels = [source_label(part.whole) for part in gathered]
        for part, value in zip(gathered, self._group(allgather, own, labels, [-1] * len(gathered), ticket)):
            found = unwrapped(part.whole)
            found.assign(tf.reshape(value[: part.count], found.shape))
        for part in (part for part, sent in zip(parts, is_sent) if sent):
            found, label = unwrapped(part.whole), source_label(part.whole)
            name, root = f"{self.node_name}_Broadcast", cast(int, part.owner)
            found.assign(broadcast_op(found.read_value(), root, label, False, name, self.communicator))

    def agree_on_finite(self, pairs: Pairs) -> Pairs:
        """See the base class. Collective."""
        known = [(i, gradient) for i, (gradient, _) in enumerate(pairs) if gradient is not None]
        if not known:
            return pairs
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for _, gradient in known])
        broken = self._sum([tf.where(finite, 0.0, float("nan"))])[0]
        i, gradient = next((each for each in known if each[1].shape.num_elements() != 0), known[0])
        if gradient.shape.num_elements() == 0:  # all are: a whole one can say it, and is made empty again
            gradient = tf.zeros(unwrapped(pairs[i][1]).shape, gradient.dtype)
        return [*pairs[:i], (gradient + tf.cast(broken, gradient.dtype), pairs[i][1]), *pairs[i + 1 :]]

    def clip(self, gradients: Sequence[Any], limit: float, is_global: bool) -> List[Any]:
        """Clips the gradients of the step by the norm of each whole one, or of all together. Collective.

        Args:
            gradients: this rank's parts of those that are not None.
            limit: the largest norm.
            is_global: whether it is that of all together.
        """
        parts = self._applied
        dtype = tf.float64 if any(each.dtype == tf.float64 for each in gradients) else tf.float32
        squares = [tf.reduce_sum(tf.square(tf.cast(each, dtype))) for each in gradients]
        shared = [i for i, part in enumerate(parts) if not part.is_everyones]
        for i, total in zip(shared, self._sum([squares[i] for i in shared])):
            squares[i] = total
        norms = list(map(tf.sqrt, squares))
        if is_global:
            norm = tf.sqrt(tf.add_n(squares))
            # As in tf.clip_by_global_norm: all gradients become NaN if the norm is not finite.
            norms = [norm + (norm - norm)] * len(squares)
        return [
            each * tf.cast(limit / tf.maximum(norm, limit), each.dtype)
            for each, norm in zip(gradients, norms)
        ]

    def _sum(self, numbers: List[tf.Tensor]) -> List[tf.Tensor]:
        if not numbers:
            return []
        name = f"{self.node_name}_Norms"
        summed = allreduce_group(
            [tf.stack(numbers)], [name], Compression.none, ReduceOp.SUM, name, self.communicator
        )
        return tf.unstack(summed[0])


def _is_plain_graph() -> bool:
    return not (tf.executing_eagerly() or op_parts.in_xla_context())


def _check_shape(what: str, tensor: tf.Tensor, part: Part, shape: tf.TensorShape) -> None:
    if not tensor.shape.is_compatible_with(shape):
        name = source_label(part.whole) or "a variable"
        raise ValueError(f"{_CALLER}: a {what} for {name} has shape {tensor.shape}, and not {shape}.")


def _nothing(shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
    """Returns the empty part of a tensor of this shape. Some optimizers ask for the number of dimensions."""
    return tf.zeros([0] * shape.rank, dtype)
