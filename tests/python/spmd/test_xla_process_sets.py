"""Process sets in functions that XLA compiles as a whole.

The ranks' programs differ: a rank has only the collectives of the sets that it is in. Several sets meet in
one program here; test_process_sets.py has each collective in one set at a time, compiled, too.
"""

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled
from test_xla_order import slow
from values import sum_of_ranks

import tf_smddp as sdp

SUM = sdp.ReduceOp.SUM
STEPS = 30


@pytest.fixture
def sets(size):
    """Those that overlap: each rank with its neighbour, and all ranks, twice."""
    members = [sorted({rank, (rank + 1) % size}) for rank in range(size)]
    added = [sdp.add_process_set(ranks) for ranks in (*members, range(size), range(size))]
    yield added
    for process_set in added:
        assert sdp.remove_process_set(process_set) is True


@pytest.fixture
def halves(size):
    """Two sets that share no rank; the second is empty in a job of one rank."""
    added = [sdp.add_process_set(ranks) for ranks in (range(0, size, 2), range(1, size, 2)) if len(ranks)]
    yield added
    for process_set in added:
        assert sdp.remove_process_set(process_set) is True


def of(ranks):
    """The sum of rank + 1 over these ranks, which is what `total` returns in units of its factor."""
    return float(sum(rank + 1 for rank in ranks))


def total(x, factor, process_set=None):
    """The sum of x's first element over the ranks of the set, times the factor."""
    mine = factor * x
    # The ranks compute for different times, so that the order of what is ready differs.
    if (sdp.rank() + int(factor)) % 2:
        mine = slow(mine)
    return sdp.allreduce(mine, 0, 1, op=SUM, process_set=process_set)[0]


def test_overlapping_sets_in_one_function(rank, size, sets):
    """They have no data in common: only the order of the program keeps the ranks from waiting in a circle."""
    own = [(number, process_set) for number, process_set in enumerate(sets, 4) if process_set.included()]

    @compiled
    def function(x):
        before = total(x, 1)
        in_sets = [total(x, number, process_set) for number, process_set in own]
        return before, in_sets, total(x, 3)

    for _ in range(STEPS):
        before, in_sets, after = function(tf.fill([500], rank + 1.0))
        assert [float(before), float(after)] == [sum_of_ranks(size), 3.0 * sum_of_ranks(size)]
        wanted = [number * of(process_set.ranks) for number, process_set in own]
        assert [float(result) for result in in_sets] == wanted


def test_sets_in_loops_and_branches(rank, size, sets):
    """Between the sets are collectives of all ranks, in which the members and the others meet."""

    def in_set(x, n, process_set):
        result = tf.switch_case(
            n, [lambda factor=factor: total(x, factor, process_set) for factor in range(4)]
        )
        for _ in tf.range(n):
            result += total(x, 4, process_set)
        return result

    @compiled
    def function(x, n):
        results, in_loop = [], 0.0
        for process_set in sets:
            if process_set.included():
                results.append(in_set(x, n, process_set))
            results.append(total(x, 1))
        for _ in tf.range(n):
            in_loop += total(x, 5)
            for process_set in sets:
                if process_set.included():
                    in_loop += total(x, 6, process_set)
        return results, in_loop

    for n in (3, 1):
        wanted, in_every_round = [], 5.0 * sum_of_ranks(size)
        for process_set in sets:
            if process_set.included():
                wanted.append((n + 4.0 * n) * of(process_set.ranks))
                in_every_round += 6.0 * of(process_set.ranks)
            wanted.append(float(sum_of_ranks(size)))
        for _ in range(STEPS // 2):
            results, in_loop = function(tf.fill([500], rank + 1.0), tf.constant(n))
            assert [float(result) for result in results] == wanted
            assert float(in_loop) == n * in_every_round


def test_every_collective_of_several_sets(rank, sets):
    """Groups, and collectives whose results have the set's size as a dimension."""
    own = [process_set for process_set in sets if process_set.included()]

    @compiled
    def function(x):
        results = []
        for process_set in own:
            count = process_set.size()
            results.append(
                [
                    *sdp.grouped_allreduce([x, 2.0 * x], op=SUM, process_set=process_set),
                    sdp.allgather(x, process_set=process_set),
                    sdp.reducescatter(tf.repeat(x, count), op=SUM, process_set=process_set),
                    sdp.alltoall(tf.repeat(x, count), process_set=process_set),
                    sdp.broadcast(x, process_set.ranks[-1], process_set=process_set),
                    sdp.oob_allreduce(x, op=SUM, process_set=process_set),
                ]
            )
            sdp.barrier(process_set=process_set)
        return results

    for _ in range(STEPS):
        for process_set, results in zip(own, function(tf.constant([rank + 1.0]))):
            ranks = process_set.ranks
            each = [member + 1.0 for member in ranks]
            wanted = [[of(ranks)], [2 * of(ranks)], each, [of(ranks)], each, each[-1:], [of(ranks)]]
            assert [result.numpy().tolist() for result in results] == wanted


def test_members_that_compile_and_members_that_do_not(rank, sets):
    mode = compiled if rank % 2 else tf.function
    own = [process_set for process_set in sets if process_set.included()]
    function = mode(lambda x: [sdp.grouped_allreduce([x, x[:3]], op=SUM, process_set=each) for each in own])
    for _ in range(STEPS):
        for process_set, results in zip(own, function(tf.fill([1 << 16], rank + 1.0))):
            for result in results:
                np.testing.assert_array_equal(result, np.full(result.shape, of(process_set.ranks)))


def train(model, step, steps=20):
    """Runs the step on data of this rank's own; returns the weights as bytes, and each other rank's."""
    x = tf.random.stateless_normal([16, 4], [sdp.rank(), 1])
    for _ in range(steps):
        step(x, tf.reduce_sum(x, axis=1, keepdims=True) * (1.0 + sdp.rank() % 2))
    return sdp.allgather_object([weight.numpy().tobytes() for weight in model.weights])


def built_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    model.build((None, 4))
    sdp.broadcast_variables(model.weights, root_rank=0)
    return model


def check_halves(weights, size):
    """The ranks of a half have the same weights to the bit, and those of the other half have others."""
    for rank in range(size):
        assert weights[rank] == weights[rank % 2]
    if size > 1:
        assert weights[0] != weights[1]


@pytest.mark.parametrize("of_all", [False, True], ids=["alone", "beside_all_ranks"])
def test_training_in_halves_of_the_job(rank, size, halves, of_all):
    """The tape of each half, and a loss that is averaged over all ranks in the same program."""
    model = built_model()
    mine = next(half for half in halves if half.included())

    @compiled
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        tape = sdp.DistributedGradientTape(tape, process_set=mine)
        for weight, gradient in zip(model.weights, tape.gradient(loss, model.weights)):
            weight.assign_sub(0.01 * gradient)
        return sdp.oob_allreduce(loss) if of_all else sdp.oob_allreduce(loss, process_set=mine)

    check_halves(train(model, step), size)


def test_fit_in_halves_of_the_job(rank, size, halves):
    model = built_model()
    mine = next(half for half in halves if half.included())
    optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01), process_set=mine)
    model.compile(optimizer, "mse", jit_compile=True)
    check_halves(train(model, model.train_on_batch, steps=8), size)


def test_gradients_of_a_compiled_function_from_outside(rank, sets):
    own = [(number, process_set) for number, process_set in enumerate(sets, 1) if process_set.included()]

    def forward(x):
        return tf.add_n([(number + 1.0) * total(x, number, process_set) for number, process_set in own])

    def gradient(call):
        @tf.function
        def function(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = call(x)
            return tf.reduce_sum(tape.gradient(loss, x))

        return float(function(tf.fill([500], rank + 1.0)))

    wanted = sum((number + 1.0) * number * process_set.size() for number, process_set in own)
    assert gradient(compiled(forward)) == pytest.approx(wanted)
    assert gradient(forward) == pytest.approx(wanted)


@pytest.mark.min_ranks(2)
def test_a_step_that_fails_in_one_set(rank, size, halves):
    """A rank that is not in it notices nothing; the members go on in all their sets."""
    some = sdp.add_process_set([0, size - 1])
    mine = next(half for half in halves if half.included())

    def reduced(process_set):
        return compiled(lambda x: sdp.grouped_allreduce([x, 2.0 * x], op=SUM, process_set=process_set))

    in_some = reduced(some) if some.included() else None
    others = [(reduced(each), each.ranks) for each in (mine, sdp.global_process_set)]
    for _ in range(3):
        if in_some:
            with pytest.raises(
                tf.errors.InternalError, match=r"different collectives .*rank \d has .*rank \d has"
            ):
                in_some(tf.ones([1000 + (rank == 0)]))
        calls = [*([(in_some, some.ranks)] if in_some else []), *others]
        for function, ranks in calls:
            first, second = function(tf.fill([1000], rank + 1.0))
            assert first.numpy().tolist() == [of(ranks)] * 1000
            assert second.numpy().tolist() == [2 * of(ranks)] * 1000
    assert sdp.remove_process_set(some)


def test_a_removed_set_is_refused_by_its_compiled_functions(rank, size):
    """A set of the same ranks that is added later is another one."""
    process_set = sdp.add_process_set(range(size))
    function = compiled(lambda x: sdp.allreduce(x, 0, 1, op=SUM, process_set=process_set))
    assert float(function(tf.constant(1.0))) == size
    assert sdp.remove_process_set(process_set)
    later = sdp.add_process_set(range(size))
    for _ in range(2):
        with pytest.raises(tf.errors.InternalError, match="process set"):
            function(tf.constant(1.0))
    again = compiled(lambda x: sdp.allreduce(x, 0, 1, op=SUM, process_set=later))
    assert float(again(tf.constant(1.0))) == size
    assert sdp.remove_process_set(later)


def test_a_rank_outside_of_the_set_is_told_when_it_traces(rank):
    first = sdp.add_process_set([0])
    function = compiled(lambda x: sdp.allreduce(x, 0, 1, op=SUM, process_set=first))
    if rank == 0:
        assert float(function(tf.constant(3.0))) == 3.0
    else:
        with pytest.raises(ValueError, match=rf"rank {rank}, which is not in the process set \[0\]"):
            function(tf.constant(3.0))
    assert sdp.remove_process_set(first)
