"""Runs random training programs on the ranks, each with its part of a batch, and in one process.

    smddprun -np 2 python tests/python/spmd/training_programs.py FIRST_SEED [COUNT]

A seed makes one program (random_programs.py), the same on all ranks. Each rank runs it on the whole batch,
in eager mode and without tf_smddp, for the weights that are right. Then all ranks run it together, in eager
mode and in a tf.function, and some programs in a function that XLA compiles, too. A function runs 50 times
from the same start and must give the same bits each time, and TensorFlow's optimized graph must keep the
order of all ops that use a variable. With a COUNT, the command above goes on after a program that fails, and
ends with the seeds of those that failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import keras
import numpy as np
import tensorflow as tf
from lost_order import unordered_pairs
from random_programs import (
    Branch,
    Call,
    Look,
    Loop,
    Move,
    Optimizer,
    Part,
    Program,
    Term,
    Update,
    make_program,
)

import tf_smddp as sdp

WIDTH = 3  # of the data, and so of all vectors and matrices: many gradients have the same shape
ROWS = 5  # of a table
EXAMPLES = 2  # of each rank, in each step
STEPS = 4  # of a run
RATE = 1 / 16
# Traces, and runs of each. TensorFlow's executor hands more work to other threads while a function is new.
RUNS = {"eager": (1, 2), "graph": (2, 25), "compiled": (1, 50)}
KERAS_3 = not keras.__version__.startswith("2.")

SHAPES = {"matrix": (WIDTH, WIDTH), "vector": (WIDTH,), "scalar": (), "table": (ROWS, WIDTH)}
# The right weights and others differ in the order of sums only.
TOLERANCES = {"float32": 2e-4, "float64": 1e-9}


def apply_layer(what: str, h: tf.Tensor, variable: Any, ids: tf.Tensor) -> tf.Tensor:
    if what.startswith("multiply"):
        h = h @ variable
        return tf.tanh(h) if what.endswith("tanh") else h
    if what.endswith("rows"):
        variable = tf.gather(variable, ids)
    return h + variable if what.startswith("add") else h * variable


# --- Who runs a program: the ranks, or one process without us. ---


class Passes:
    """backward_passes_per_step in one process, in eager mode: each list of variables counts for itself."""

    def __init__(self, optimizer: Any, passes: int):
        self._optimizer, self._passes = optimizer, passes
        self._sums: Dict[Any, Any] = {}

    def apply_gradients(self, pairs: Any) -> None:
        pairs = list(pairs)
        key = tuple(variable.ref() for _, variable in pairs)
        count, sums = self._sums.pop(key, (0, [None] * len(pairs)))
        sums = [
            total if gradient is None else gradient if total is None else total + gradient
            for total, (gradient, _) in zip(sums, pairs)
        ]
        if count + 1 < self._passes:
            self._sums[key] = (count + 1, sums)
            return
        means = [None if total is None else total / self._passes for total in sums]
        self._optimizer.apply_gradients(zip(means, [variable for _, variable in pairs]))


class OneProcess:
    """Runs a program without tf_smddp, on the batch of all ranks."""

    in_graph = False

    def of_the_batch(self, values: np.ndarray) -> tf.Tensor:
        return tf.constant(values)

    def mean(self, value: tf.Tensor) -> tf.Tensor:
        return value

    def make_optimizer(self, how: Optimizer, make: Callable[..., Any]) -> Any:
        if how.passes > 1 and not KERAS_3:
            return Passes(make(), how.passes)
        return make()

    def gradients(self, how: Optimizer, tape: Any, loss: tf.Tensor, variables: List[Any]) -> List[Any]:
        found = tape.gradient(loss, variables)
        return found if how.rows and how.reduced_by != "hand" else _dense(found)


class Ranks(OneProcess):
    """Runs a program as one of the ranks, on its part of the batch."""

    def __init__(self, in_graph: bool):
        self.in_graph = in_graph

    def of_the_batch(self, values: np.ndarray) -> tf.Tensor:
        """This rank's examples of [steps, examples, ...]."""
        return tf.constant(values[:, sdp.rank() * EXAMPLES : (sdp.rank() + 1) * EXAMPLES])

    def mean(self, value: tf.Tensor) -> tf.Tensor:
        return sdp.allreduce(value, 0, 1)

    def make_optimizer(self, how: Optimizer, make: Callable[..., Any]) -> Any:
        optimizer = make()
        if how.reduced_by != "optimizer":
            return optimizer
        passes = {} if KERAS_3 else {"backward_passes_per_step": how.passes}
        return sdp.DistributedOptimizer(optimizer, sparse_as_dense=not how.rows, **passes)

    def gradients(self, how: Optimizer, tape: Any, loss: tf.Tensor, variables: List[Any]) -> List[Any]:
        if how.reduced_by == "tape":
            tape = sdp.DistributedGradientTape(tape, sparse_as_dense=not how.rows)
            return tape.gradient(loss, variables)
        found = tape.gradient(loss, variables)
        if how.reduced_by == "optimizer":
            return found
        present = [i for i, gradient in enumerate(found) if gradient is not None]
        for place, i in enumerate(present):
            found[i] = sdp.allreduce(found[i], place, len(present))
        return found


def _dense(gradients: List[Any]) -> List[Any]:
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


class Training:
    """A program with variables and optimizers of its own."""

    def __init__(self, program: Program, seed: int, world: OneProcess):
        self._program, self._world = program, world
        self._created: List[Tuple[tf.Variable, np.ndarray]] = []
        values = np.random.default_rng(seed)
        examples = (STEPS, EXAMPLES * sdp.size())
        self._x = world.of_the_batch(values.integers(-2, 3, (*examples, WIDTH)).astype(program.dtype))
        self._ids = world.of_the_batch(values.integers(0, ROWS, examples))
        with self._noting_variables():
            self.variables = [
                self._variable(values.integers(-2, 3, SHAPES[kind]) / 2.0, kind) for kind in program.variables
            ]
            self._log = tf.Variable(tf.zeros([], program.dtype), trainable=False)
            self._optimizers = [self._make(i, how) for i, how in enumerate(program.optimizers)]

    def run(self, step: Callable[[tf.Tensor], tf.Tensor]) -> List[np.ndarray]:
        """Runs all steps from the start; returns what the steps returned, and then all variables' values."""
        for variable, start in self._created:
            variable.assign(start)
        with self._noting_variables():
            results = [step(tf.constant(k)).numpy() for k in range(STEPS)]
        return [*results, *(variable.numpy() for variable, _ in self._created)]

    def weights(self) -> List[np.ndarray]:
        return [np.asarray(tf.convert_to_tensor(each)) for each in (*self.variables, self._log)]

    def step(self, k: tf.Tensor) -> tf.Tensor:
        """One step; returns the sum of what its statements computed last."""
        return self._run_body(self._program.body, k)

    @contextlib.contextmanager
    def _noting_variables(self) -> Iterator[None]:
        """Notes each variable, with its first value: those of optimizers, and what they accumulate."""

        def create(make: Callable[..., Any], **arguments: Any) -> Any:
            variable = make(**arguments)
            self._created.append((variable, variable.numpy()))
            return variable

        with tf.variable_creator_scope(create):
            yield

    def _variable(self, value: np.ndarray, kind: str) -> Any:
        value = value.astype(self._program.dtype)
        if self._program.keras_variables and kind != "table":
            return tf.keras.Variable(value, dtype=self._program.dtype)
        return tf.Variable(value)

    def _make(self, number: int, how: Optimizer) -> Any:
        optimizers = tf.keras.optimizers.legacy if how.legacy else tf.keras.optimizers
        arguments: Dict[str, Any] = {how.clip: 0.5} if how.clip else {}
        if KERAS_3 and how.passes > 1:
            arguments["gradient_accumulation_steps"] = how.passes

        def make() -> Any:
            if how.kind == "Adam":
                # The large epsilon keeps a gradient that is zero, but for rounding, from becoming a step.
                optimizer = optimizers.Adam(RATE, epsilon=0.125, **arguments)
            else:
                optimizer = optimizers.SGD(RATE, 0.5 if how.kind == "momentum" else 0.0, **arguments)
            if not how.legacy:
                optimizer.build([self.variables[i] for i in range(len(self.variables))])
            return optimizer

        return None if how.reduced_by == "hand" else self._world.make_optimizer(how, make)

    def _run_body(self, body: Tuple[Any, ...], k: tf.Tensor) -> tf.Tensor:
        return self._sum([getattr(self, f"_run_{type(each).__name__.lower()}")(each, k) for each in body])

    def _sum(self, values: List[tf.Tensor]) -> tf.Tensor:
        """Adds in order.

        TensorFlow makes an AddN of a chain of additions. That begins with the first tensor whose memory no
        other op still has, which depends on time.
        """
        return tf.reduce_sum(tf.stack([tf.zeros([], self._program.dtype), *values]))

    def _run_update(self, update: Update, k: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(persistent=len(update.parts) > 1) as tape:
            losses = [self._loss(part.loss, k) for part in update.parts]
        pending = []
        for part, loss in zip(update.parts, losses):
            variables = [self.variables[i] for i in part.variables]
            how = self._program.optimizers[part.optimizer]
            pending.append((part, variables, self._world.gradients(how, tape, loss, variables)))
            if not update.gradients_first:
                self._apply(*pending.pop())
        for each in pending:
            self._apply(*each)
        return self._sum(losses)

    def _apply(self, part: Part, variables: List[Any], gradients: List[Any]) -> None:
        optimizer = self._optimizers[part.optimizer]
        if optimizer is not None:
            optimizer.apply_gradients(zip(gradients, variables))
            return
        for gradient, variable in zip(gradients, variables):
            if gradient is not None:
                variable.assign(variable - RATE * gradient)

    def _run_move(self, move: Move, k: tf.Tensor) -> tf.Tensor:
        target, source = self.variables[move.target], self.variables[move.source]
        if move.kind == "average":
            target.assign(0.5 * target + 0.5 * source)
        elif move.kind == "clip":
            target.assign(tf.clip_by_value(tf.convert_to_tensor(target), -0.75, 0.75))
        elif move.kind == "decay":
            target.assign(0.75 * target)
        else:
            before = tf.identity(target)
            target.assign(tf.identity(source))
            source.assign(before)
        return tf.zeros([], self._program.dtype)

    def _run_look(self, look: Look, k: tf.Tensor) -> tf.Tensor:
        loss = self._world.mean(self._loss(look.loss, k))
        self._log.assign(0.5 * self._log + loss)
        return loss

    def _run_branch(self, branch: Branch, k: tf.Tensor) -> tf.Tensor:
        if branch.condition == "even step":
            condition = tf.equal(k % 2, 0)
        elif branch.condition == "late step":
            condition = k >= 2
        else:
            condition = tf.reduce_sum(tf.convert_to_tensor(self.variables[branch.variable])) > 0.1234
        return tf.cond(condition, lambda: self._run_body(branch.yes, k), lambda: self._run_body(branch.no, k))

    def _run_loop(self, loop: Loop, k: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < loop.times,
            lambda i, total: (i + 1, total + self._run_body(loop.body, k)),
            [0, tf.zeros([], self._program.dtype)],
        )[1]

    def _run_call(self, call: Call, k: tf.Tensor) -> tf.Tensor:
        def body(k: tf.Tensor) -> tf.Tensor:
            return self._run_body(call.body, k)

        function = tf.function(body, autograph=False) if self._world.in_graph else body
        return self._sum([function(k) for _ in range(call.times)])

    def _loss(self, terms: Tuple[Term, ...], k: tf.Tensor) -> tf.Tensor:
        def value(term: Term) -> tf.Tensor:
            def compute() -> tf.Tensor:
                return self._term(term, k)

            in_function = term.in_function and self._world.in_graph
            return tf.function(compute, autograph=False)() if in_function else compute()

        return self._sum([value(term) for term in terms])

    def _term(self, term: Term, k: tf.Tensor) -> tf.Tensor:
        x, ids = tf.gather(self._x, k), tf.gather(self._ids, k)

        def forward(h: tf.Tensor) -> tf.Tensor:
            for what, variable in term.layers:
                h = apply_layer(what, h, self.variables[variable], ids)
            return h

        if term.end == "penalty":  # as in a WGAN-GP
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(tf.tanh(forward(x)))
            value = tf.reduce_mean(tape.gradient(total, x) ** 2)
        elif term.end == "together":
            value = tf.reduce_sum(tf.tanh(self._world.mean(tf.reduce_mean(forward(x), 0))))
        else:
            h = forward(x)
            value = tf.reduce_mean({"linear": h, "square": h * h, "tanh": tf.tanh(h)}[term.end])
        if term.weight is not None:
            value *= self.variables[term.weight]
        return term.factor * value


# --- Running, and comparing. ---


def run_program(seed: int) -> List[str]:
    """Runs the program of a seed in each mode; returns what was wrong, on any rank. Collective."""
    program = make_program(seed, KERAS_3)
    alone = Training(program, seed, OneProcess())
    alone.run(alone.step)
    right = alone.weights()
    found = []
    for mode in ("eager", "graph", *(["compiled"] if program.compiled else [])):
        wrong, weights = _run_mode(program, seed, mode, right)
        digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
        everyone = sdp.allgather_object((wrong, digest))
        found += [f"{mode}, rank {rank}: {text}" for rank, (text, _) in enumerate(everyone) if text]
        if len({digest for _, digest in everyone}) > 1:
            found.append(f"{mode}: the ranks' weights differ")
    return found


def _run_mode(
    program: Program, seed: int, mode: str, right: List[np.ndarray]
) -> Tuple[str, List[np.ndarray]]:
    """Returns what is wrong on this rank, and the weights after each run."""
    training = Training(program, seed, Ranks(in_graph=mode != "eager"))
    traces, runs = RUNS[mode]
    first: Optional[List[np.ndarray]] = None
    others, unlike, weights = 0, 0, []
    worst, unordered = "", []
    for _ in range(traces):
        step: Any = training.step
        if mode != "eager":
            step = tf.function(training.step, autograph=False, jit_compile=mode == "compiled" or None)
        if mode == "graph" and first is None:
            unordered = unordered_pairs(lambda step=step: training.run(step))
        for _ in range(runs):
            result = training.run(step)
            first = first or result
            others += any(a.tobytes() != b.tobytes() for a, b in zip(first, result))
            found = training.weights()
            weights += found
            distance = _distance(found, right, TOLERANCES[program.dtype])
            if distance:
                unlike, worst = unlike + 1, distance
    wrong = ""
    if unlike:
        wrong += f"{unlike} of {traces * runs} runs have not the weights of one process: {worst}; "
    if unordered:
        wrong += f"{len(unordered)} pairs of ops have lost their order: {unordered[:3]}; "
    if others:
        wrong += f"{others} of {traces * runs} runs have other bits than the first"
    return wrong, weights


def _distance(found: List[np.ndarray], right: List[np.ndarray], tolerance: float) -> str:
    for i, (a, b) in enumerate(zip(found, right)):
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"variable {i} is {a.tolist()}, not {b.tolist()}"
    return ""


def check(seed: int) -> None:
    """Raises an error that names the seed and the program, on all ranks, if anything is wrong. Collective."""
    try:
        wrong = run_program(seed)
    except Exception as error:
        raise RuntimeError(f"training program {seed}: {make_program(seed, KERAS_3)}") from error
    again = f"smddprun -np {sdp.size()} python {__file__} {seed}"
    assert not wrong, "\n".join(
        [f"training program {seed}:", *wrong, f"again: {again}", repr(make_program(seed, KERAS_3))]
    )


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sdp.init()
    tf.get_logger().setLevel("ERROR")  # Keras warns of each None
    failed = []
    for seed in range(first, first + count):
        try:
            check(seed)
        except AssertionError as error:
            failed.append(seed)
            if sdp.rank() == 0:
                print(error, flush=True)
    if sdp.rank() == 0:
        print(f"{count - len(failed)} programs passed, {len(failed)} failed: {failed}", flush=True)
    sdp.shutdown()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
