"""Random training programs: what they are made of, and the program of a seed.

They have several updates in one function, nested and persistent tapes, two optimizers, accumulation,
branches, loops, functions in functions, shared and frozen variables, gradients that are None, and gathered
rows. Many losses are linear in a variable. Variables and optimizers are numbers here; training_programs.py
runs a program.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Iterable, Iterator, Optional, Tuple

# The kinds of variables, and what a layer does with one.
LAYERS = {
    "matrix": ("multiply by a matrix", "multiply by a matrix, tanh"),
    "vector": ("add", "scale"),
    "scalar": ("scale",),
    "table": ("scale by rows", "add rows"),
}


@dataclasses.dataclass(frozen=True)
class Term:
    """A term of a loss: layers over the data, then a mean over examples."""

    layers: Tuple[Tuple[str, int], ...]  # what is done, with which variable
    end: str
    weight: Optional[int]  # a scalar that multiplies the term: a learned weight, or a dual variable
    factor: float
    in_function: bool  # a function of its own, which is differentiated from outside


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the gradients of an update."""

    loss: Tuple[Term, ...]
    variables: Tuple[int, ...]
    optimizer: int


@dataclasses.dataclass(frozen=True)
class Update:
    """Gradients, and their application. Several parts have one persistent tape."""

    parts: Tuple[Part, ...]
    gradients_first: bool  # of all parts, before the first one is applied


@dataclasses.dataclass(frozen=True)
class Move:
    """Changes a variable without a gradient."""

    kind: str
    target: int
    source: int


@dataclasses.dataclass(frozen=True)
class Look:
    """Computes a loss over all ranks, and keeps it in a variable."""

    loss: Tuple[Term, ...]


@dataclasses.dataclass(frozen=True)
class Branch:
    """tf.cond."""

    condition: str
    variable: int
    yes: Tuple[Any, ...]
    no: Tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Loop:
    """tf.while_loop."""

    times: int
    body: Tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Call:
    """A function in a function, called once or twice."""

    times: int
    body: Tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How gradients are reduced and applied."""

    reduced_by: str  # "tape", "optimizer" or "hand"
    kind: str  # by hand, it is gradient descent
    clip: str
    rows: bool  # sparse_as_dense=False
    passes: int
    legacy: bool


@dataclasses.dataclass(frozen=True)
class Program:
    """The program that a seed makes."""

    dtype: str
    variables: Tuple[str, ...]  # their kinds
    keras_variables: bool
    optimizers: Tuple[Optimizer, ...]
    body: Tuple[Any, ...]
    compiled: bool


def make_program(seed: int, keras_3: bool) -> Program:
    """Returns the program of a seed."""
    return _Maker(seed, keras_3).program()


class _Maker:
    def __init__(self, seed: int, keras_3: bool):
        self._random = random.Random(seed)
        self._keras_3 = keras_3

    def program(self) -> Program:
        choose, chance = self._random.choice, self._chance
        kinds = ["matrix", "matrix", *self._random.choices(list(LAYERS), [3, 2, 2, 2], k=choose([1, 2, 3]))]
        self._kinds = tuple(kinds)
        self._optimizers = tuple(self._optimizer() for _ in range(choose([1, 1, 2])))
        # The lists of variables that an optimizer gets: mostly the same one each time.
        self._lists = [self._list() for _ in self._optimizers]
        self._updates_left = 4
        body = ()
        while not any(isinstance(each, Update) for each in _within(body)):
            body = self._body(choose([1, 2, 3, 4]), depth=0)
        return Program(
            dtype=choose(["float32", "float64"]),
            variables=self._kinds,
            keras_variables=self._keras_3 and chance(0.5),
            optimizers=self._optimizers,
            body=body,
            # XLA has no kernel for a momentum of rows in Keras 2's legacy SGD. It computes wrong weights for
            # functions that are called in a branch, with tf_smddp and without (docs/sharp-bits.md).
            compiled=chance(0.15)
            and not any(each.legacy and each.rows and each.kind == "momentum" for each in self._optimizers)
            and not any(_calls_function(each) for each in _within(body) if isinstance(each, Branch)),
        )

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _optimizer(self) -> Optimizer:
        reduced_by = self._random.choice(["tape", "tape", "optimizer", "optimizer", "hand"])
        passes = 2 if self._chance(0.25) and (reduced_by == "optimizer" or self._keras_3) else 1
        return Optimizer(
            reduced_by=reduced_by,
            kind=self._random.choice(["SGD", "SGD", "momentum", "Adam"]),
            clip=self._random.choice(["", "", "", "clipnorm", "global_clipnorm", "clipvalue"]),
            rows=self._chance(0.3) and passes == 1,
            passes=passes,
            legacy=not self._keras_3 and self._chance(0.25),
        )

    def _list(self) -> Tuple[int, ...]:
        count = len(self._kinds)
        return tuple(self._random.sample(range(count), self._random.randint(1, count)))

    def _body(self, statements: int, depth: int) -> Tuple[Any, ...]:
        return tuple(self._statement(depth) for _ in range(statements))

    def _statement(self, depth: int) -> Any:
        weights = {"update": 8 * (self._updates_left > 0), "move": 2, "look": 1}
        if depth < 2:
            weights.update(branch=1, loop=1, call=2)
        kind = self._random.choices(list(weights), list(weights.values()))[0]
        body = lambda: self._body(self._random.choice([1, 1, 2]), depth + 1)  # noqa: E731
        if kind == "branch":
            condition = self._random.choice(["even step", "late step", "large value"])
            return Branch(condition, self._any(), body(), body() if self._chance(0.6) else ())
        if kind == "loop":
            return Loop(self._random.choice([1, 2, 3]), body())
        if kind == "call":
            return Call(self._random.choice([1, 2]), body())
        if kind == "look":
            return Look(self._loss())
        if kind == "move":
            target = self._any()
            same = [i for i, other in enumerate(self._kinds) if other == self._kinds[target]]
            return Move(
                self._random.choice(["average", "clip", "decay", "swap"]), target, self._random.choice(same)
            )
        self._updates_left -= 1
        parts = tuple(self._part() for _ in range(self._random.choice([1, 1, 1, 2])))
        return Update(parts, self._chance(0.5))

    def _part(self) -> Part:
        optimizer = self._random.randrange(len(self._optimizers))
        variables = self._list() if self._chance(0.2) else self._lists[optimizer]
        loss = self._loss()
        used = {variable for term in loss for _, variable in term.layers}
        if self._optimizers[optimizer].passes > 1:
            # Gradients that are None in some passes are tested in test_optimizer_passes.py.
            variables = tuple(i for i in variables if i in used)
        # A list without any gradient is an error in Keras.
        if not used & set(variables):
            variables = (*variables, loss[0].layers[0][1])
        return Part(loss, variables, optimizer)

    def _loss(self) -> Tuple[Term, ...]:
        return tuple(self._term() for _ in range(self._random.choice([1, 1, 2])))

    def _any(self, *kinds: str) -> int:
        return self._random.choice([i for i, kind in enumerate(self._kinds) if not kinds or kind in kinds])

    def _term(self) -> Term:
        layers = []
        for _ in range(self._random.choice([1, 2, 2, 3])):
            variable = self._any()
            layers.append((self._random.choice(LAYERS[self._kinds[variable]]), variable))
        scalars = "scalar" in self._kinds
        return Term(
            layers=tuple(layers),
            end=self._random.choice(["linear", "linear", "linear", "square", "tanh", "penalty", "together"]),
            weight=self._any("scalar") if scalars and self._chance(0.4) else None,
            factor=self._random.choice([-1.0, 0.5, 1.0, 1.0]),
            in_function=self._chance(0.15),
        )


def _within(body: Iterable[Any]) -> Iterator[Any]:
    """The statements of a body, and those within them."""
    for each in body:
        yield each
        yield from _within([*getattr(each, "yes", ()), *getattr(each, "no", ()), *getattr(each, "body", ())])


def _calls_function(branch: Branch) -> bool:
    inside = list(_within([branch]))
    losses = [part.loss for each in inside if isinstance(each, Update) for part in each.parts]
    losses += [each.loss for each in inside if isinstance(each, Look)]
    return any(term.in_function for loss in losses for term in loss)
