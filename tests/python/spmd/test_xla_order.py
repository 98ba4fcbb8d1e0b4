"""The order of collectives that don't depend on each other, in one function that XLA compiles.

Were it left to XLA, it would differ from run to run and from rank to rank: these tests hang then, or a
collective meets another one of its shape. The ranks' programs differ by slow computations that one of them
has and the other has not.
"""

import re

import pytest
import tensorflow as tf
from modes import compiled
from values import sum_of_ranks

import tf_smddp as sdp

SUM = sdp.ReduceOp.SUM
STEPS = 30


def slow_zero(x):
    """A zero that takes XLA some time."""
    square = tf.reshape(x[:1], [1, 1]) + tf.zeros([160, 160])
    for _ in range(3):
        square = tf.sin(tf.matmul(square, square) * 1e-3)
    return 0.0 * tf.reduce_sum(square)


@tf.custom_gradient
def slow(x):
    return x + slow_zero(x), lambda grad: grad + slow_zero(grad)


def total(x, factor, reduce=sdp.allreduce):
    """The sum over the ranks of x's first element, times the factor. It depends on nothing else."""
    mine = factor * x
    if (sdp.rank() + int(factor)) % 2:
        mine = slow(mine)
    return reduce(mine, 0, 1, op=SUM)[0]


def times(count, x, factor):
    result = 0.0
    for _ in tf.range(count):
        result += total(x, factor)
    return result


def loop(x, n):
    before = total(x, 1)
    in_loop = 0.0
    for _ in tf.range(n):
        in_loop += total(x, 2)
        in_loop += total(x, 3)
    return before, in_loop, total(x, 4)


def two_loops(x, n):
    return times(n, x, 1), total(x, 2), times(n + 1, x, 3), times(n, x, 4)


def branch(x, n):
    before = total(x, 1)
    chosen = total(x, 2) + total(x, 4) if n > 2 else total(x, 3)
    return before, chosen, total(x, 5)


def branch_without(x, n):
    """One of the branches has no collective."""
    chosen = 10.0
    before = total(x, 1)
    if n > 2:
        chosen = total(x, 2)
    return before, chosen, total(x, 3)


def case(x, n):
    before = total(x, 1)
    branches = [lambda factor=factor: total(x, factor) for factor in (2, 3, 4, 5)]
    return before, tf.switch_case(n, branches), total(x, 6)


def nested(x, n):
    before = total(x, 1)
    result = 0.0
    for i in tf.range(n):
        result += times(2, x, 2)
        if i > 0:
            result += times(n, x, 3)
        result += total(x, 4)
    return before, result, total(x, 5)


def loop_in_branch(x, n):
    before = total(x, 1)
    result = times(n, x, 2) if n > 2 else total(x, 3)
    return before, result, total(x, 4), times(n, x, 5)


def in_condition(x, n):
    before = total(x, 1)
    _, rounds = tf.while_loop(
        lambda i, _: total(x, 2) * tf.cast(i, tf.float32) < total(x, 2) * tf.cast(n, tf.float32),
        lambda i, rounds: (i + 1, rounds + total(x, 3)),
        (0, 0.0),
    )
    return before, rounds, total(x, 4)


inner_total = tf.function(lambda x: (total(x, 2), total(x, 3)))
inner_other = tf.function(lambda x: total(x, 6))
inner_loop = tf.function(lambda x, n: times(n, x, 4))


def calls(x, n):
    """Their names, by which TensorFlow orders what it is free to order, differ from rank to rank."""
    with tf.name_scope("az"[sdp.rank() % 2]):
        first = inner_total(x)
    with tf.name_scope("za"[sdp.rank() % 2]):
        other = inner_other(x)
    with tf.name_scope("am"[sdp.rank() % 2]):
        return *first, other, inner_loop(x, n), total(x, 5), *inner_total(x)


def functions(x, n):
    before = total(x, 1)
    first = inner_total(x)
    looped = inner_loop(x, n)
    result = 0.0
    for _ in tf.range(n):
        result += tf.add_n(inner_total(x))
        result += inner_loop(x, n)
    return before, *first, looped, result, *inner_total(x), total(x, 5)


def only_functions(x, n):
    """Their caller has no collective of its own."""
    result = 0.0
    for _ in tf.range(n):
        result += tf.add_n(inner_total(x))
    return *inner_total(x), result, inner_loop(x, n), inner_loop(x, n + 1)


def other_collectives(x, n):
    def gathered(*arguments, **_):
        return tf.reduce_sum(sdp.allgather(arguments[0][:1]), axis=0, keepdims=True)

    def out_of_band(*arguments, **_):
        return sdp.oob_allreduce(arguments[0], op=SUM)

    def grouped(*arguments, **_):
        return sdp.grouped_allreduce([arguments[0], 2.0 * arguments[0]], op=SUM)[1] / 2.0

    before = total(x, 1, grouped)
    result = 0.0
    for _ in tf.range(n):
        result += total(x, 2, gathered)
        result += total(x, 3, out_of_band)
        result += total(x, 4, grouped)
        sdp.barrier()
    return before, result, total(x, 5, out_of_band), total(x, 6, grouped), total(x, 7, gathered)


traced_before = [tf.function(lambda x, factor=factor: total(x, factor)) for factor in (2, 3, 4)]


def calls_of_what_was_traced_before(x, n):
    """As other functions call it, which XLA does not compile; and names as above."""
    results = []
    for i, function in enumerate(traced_before):
        with tf.name_scope(("abc", "cba")[sdp.rank() % 2][i]):
            results.append(function(x))
    return *results, total(x, 5)


# The results of the programs for n=3, in units of the ranks' sum.
PROGRAMS = {
    loop: (1, 15, 4),
    two_loops: (3, 2, 12, 12),
    branch: (1, 6, 5),
    branch_without: (1, 2, 3),
    case: (1, 5, 6),
    nested: (1, 3 * 4 + 2 * 9 + 3 * 4, 5),
    loop_in_branch: (1, 6, 4, 15),
    in_condition: (1, 9, 4),
    calls: (2, 3, 6, 12, 5, 2, 3),
    calls_of_what_was_traced_before: (2, 3, 4, 5),
    functions: (1, 2, 3, 12, 3 * 5 + 3 * 12, 2, 3, 5),
    only_functions: (2, 3, 15, 12, 16),
    other_collectives: (1, 27, 5, 6, 7),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.__name__ for program in PROGRAMS])
def test_independent_collectives(rank, size, program):
    function = compiled(program)
    wanted = [float(units * sum_of_ranks(size)) for units in PROGRAMS[program]]
    for traced in traced_before:
        traced(tf.fill([500], 1.0))
    for _ in range(STEPS):
        results = function(tf.fill([500], rank + 1.0), tf.constant(3))
        assert [float(result) for result in results] == wanted


def test_only_a_loops_condition_communicates(rank, size):
    @compiled
    def function(x, n):
        before = total(x, 1)
        inner = tf.while_loop(lambda i: inner_total(x)[0] + tf.cast(i, tf.float32) < n, lambda i: i + 1, [0])
        return before, inner[0], total(x, 3)

    limit = 2.0 * sum_of_ranks(size) + 3.0
    for _ in range(STEPS):
        results = function(tf.fill([500], rank + 1.0), tf.constant(limit))
        assert [float(result) for result in results] == [sum_of_ranks(size), 3.0, 3.0 * sum_of_ranks(size)]


def test_what_follows_such_a_loop_depends_on_it():
    """In the program that XLA has optimized. Otherwise it may come first, as in programs for a GPU."""

    @tf.function(jit_compile=True)
    def function(x, n):
        inner = tf.while_loop(lambda i: total(x, 2) + tf.cast(i, tf.float32) < n, lambda i: i + 1, [0])
        return total(x, 1), inner[0], total(x, 3)

    make_text = function.experimental_get_compiler_ir(tf.ones([5]), tf.constant(3.0))
    _, _, program = make_text(stage="optimized_hlo").partition("\nENTRY ")
    after_loop, calls = set(), []
    for line in program.splitlines():  # each result comes before what uses it
        name, _, value = line.removeprefix("  ").removeprefix("ROOT ").partition(" = ")
        if re.search(r"\bwhile\(", value) or after_loop.intersection(re.findall(r"%[\w.-]+", value)):
            after_loop.add(name)
        if '"tf_smddp_run"' in value:
            calls.append(name in after_loop)
    assert calls == [True, True]


def test_compiled_functions_in_branches_and_loops_of_one_that_is_not(rank, size):
    step = compiled(lambda x: total(x, 2) + total(x, 3))

    @tf.function
    def function(x, n):
        before = step(x)
        in_loop = 0.0
        for _ in tf.range(n):
            in_loop += step(x)
        if n > 2:
            in_loop += step(x)
        return before, in_loop, step(x)

    for _ in range(STEPS):
        results = function(tf.fill([500], rank + 1.0), tf.constant(3))
        assert [float(result) for result in results] == [units * sum_of_ranks(size) for units in (5, 20, 5)]


def test_a_function_that_was_traced_in_a_compiled_one(rank, size):
    """It is called elsewhere, too."""
    in_loop = tf.function(lambda x, n: times(n, x, 2))
    function = compiled(lambda x, n: in_loop(x, n))
    x, n = tf.fill([500], rank + 1.0), tf.constant(3)
    for _ in range(2):
        assert float(function(x, n)) == 6.0 * sum_of_ranks(size)
        assert float(in_loop(x, n)) == 6.0 * sum_of_ranks(size)


def test_a_loop_that_was_traced_before(rank, size):
    """It works where data keeps the order, and says what it lacks."""
    in_loop = tf.function(lambda x, n: times(n, x, 2))
    x, n = tf.fill([500], rank + 1.0), tf.constant(3)
    in_loop(x, n)
    function = compiled(lambda x, n: in_loop(x + 0.0 * total(x, 1), n))
    with pytest.warns(UserWarning, match="traced outside"):
        assert float(function(x, n)) == 6.0 * sum_of_ranks(size)


def weighted(results):
    """The sum, each of them with a weight of its own: so their gradients differ."""
    return tf.add_n([(k + 1.0) * result for k, result in enumerate(results)])


def gradient_inside(program):
    @compiled
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = weighted(program(x, tf.constant(3)))
        return loss, tf.reduce_sum(tape.gradient(loss, x)), total(x, 8)

    return function


def gradient_from_outside(program):
    forward = compiled(lambda x: weighted(program(x, tf.constant(3))))

    @tf.function
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = forward(x)
        return loss, tf.reduce_sum(tape.gradient(loss, x)), total(x, 8)

    return function


# XLA cannot compile gradients of a branch, or of a call in a loop, that are taken outside of the compiled
# function.
GRADIENTS = [
    *((gradient_inside, program) for program in (two_loops, branch, case, nested, functions)),
    *((gradient_from_outside, program) for program in (loop, two_loops, calls)),
]
# Each takes XLA of TensorFlow 2.21 several seconds. `make test` runs a loop, a branch and calls, each way.
SHORT = {(gradient_inside, branch), (gradient_inside, functions), (gradient_from_outside, two_loops)}


@pytest.mark.parametrize(
    "differentiated, program",
    [
        pytest.param(
            *each,
            marks=[] if each in SHORT else pytest.mark.long,
            id=f"{each[0].__name__}-{each[1].__name__}",
        )
        for each in GRADIENTS
    ],
)
def test_gradients(rank, size, differentiated, program):
    """Backward, too, there are loops and branches with collectives, and others beside them."""
    function = differentiated(program)
    units = weighted([float(units) for units in PROGRAMS[program]]).numpy()
    wanted = [units * sum_of_ranks(size), units * size, 8 * sum_of_ranks(size)]
    for _ in range(STEPS):
        results = [float(result) for result in function(tf.fill([500], rank + 1.0))]
        assert results == pytest.approx(wanted, rel=1e-5)
