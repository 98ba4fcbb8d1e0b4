"""Pairing: tickets are drawn in program order, and nothing else needs an order."""

import time

import pytest
import tensorflow as tf
from delays import delayed
from values import sum_of_ranks

import tf_smddp as sdp
from tf_smddp._graphs import op_parts

SUM = sdp.ReduceOp.SUM


def test_a_group_is_started_in_another_order_on_each_rank(rank, size):
    """Rank by rank another tensor of the group is the last to be there."""

    @tf.function
    def function(x):
        return [sdp.allreduce(delayed(x * i, 20 * ((i + rank) % 4)), i, 4, op=SUM) for i in range(4)]

    for _ in range(3):
        results = function(tf.constant(rank + 1.0))
        assert [float(result) for result in results] == [i * sum_of_ranks(size) for i in range(4)]


def test_independent_groups_are_started_in_another_order_on_each_rank(rank, size):
    @tf.function
    def function(x):
        order = range(4)
        return [sdp.allreduce(delayed(x * i, 20 * ((i + rank) % 4)), 0, 1, op=SUM) for i in order]

    results = function(tf.constant(rank + 1.0))
    assert [float(result) for result in results] == [i * sum_of_ranks(size) for i in range(4)]


def test_two_groups_of_identical_shapes_in_one_step(rank, size):
    @tf.function
    def function(x):
        first = [sdp.allreduce(x + i, i, 3, op=SUM) for i in range(3)]
        second = [sdp.allreduce(x + 10 + i, i, 3, op=SUM) for i in (2, 0, 1)]
        return first, second

    for _ in range(3):
        first, second = function(tf.constant([rank + 1.0]))
        assert [float(x[0]) for x in first] == [sum_of_ranks(size) + size * i for i in range(3)]
        assert [float(x[0]) for x in second] == [sum_of_ranks(size) + size * (10 + i) for i in (2, 0, 1)]


def test_two_tapes_with_identical_shapes_in_one_step(rank, size):
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])

    @tf.function
    def function(x):
        with tf.GradientTape() as first:
            y = tf.reduce_sum(a * x)
        with tf.GradientTape() as second:
            z = tf.reduce_sum(b * x * 10.0)
        first = sdp.DistributedGradientTape(first, op=SUM)
        second = sdp.DistributedGradientTape(second, op=SUM)
        return first.gradient(y, a), second.gradient(z, b)

    for mode in (function, function.python_function):
        gradient_a, gradient_b = mode(tf.constant(rank + 1.0))
        assert gradient_a.numpy().tolist() == [sum_of_ranks(size)] * 2
        assert gradient_b.numpy().tolist() == [10 * sum_of_ranks(size)] * 2


@pytest.mark.parametrize("nested", [False, True])
def test_iterations_of_a_while_loop_do_not_mix(rank, size, nested):
    """Iterations overlap (parallel_iterations), some are slow on one rank and some on the other."""

    def reduce(i):
        return sdp.allreduce(tf.cast(i, tf.float32) + rank, 0, 1, op=SUM)

    reduce = tf.function(reduce) if nested else reduce

    @tf.function
    def function(count):
        results = tf.TensorArray(tf.float32, count)

        def body(i, results):
            slow = tf.cond((i + rank) % 2 == 0, lambda: delayed(i, 5), lambda: i)
            return i + 1, results.write(i, tf.where(i % 3 == 0, reduce(slow), reduce(i)))

        return tf.while_loop(lambda i, _: i < count, body, (0, results), parallel_iterations=10)[1].stack()

    ranks = sum(range(size))
    assert function(tf.constant(20)).numpy().tolist() == [i * size + ranks for i in range(20)]


def test_tickets_of_a_while_loop_are_in_iteration_order():
    """Each iteration waits for a while of its own before its ticket; later ones must not overtake it."""

    @tf.function
    def function(count):
        tickets = tf.TensorArray(tf.int64, count)

        def body(i, tickets):
            tf.py_function(lambda i: time.sleep(0.004 if int(i) % 2 == 0 else 0.0), [i], [])
            return i + 1, tickets.write(i, op_parts.ticket())

        return tf.while_loop(lambda i, _: i < count, body, (0, tickets), parallel_iterations=10)[1].stack()

    tickets = function(tf.constant(30)).numpy()
    assert (tickets - tickets[0]).tolist() == list(range(30))


@pytest.mark.parametrize("window", [2, 3])
def test_a_window_of_iterations_whose_collectives_start_in_another_order_on_each_rank(rank, size, window):
    """Later tickets of a key come before earlier ones: Note [Deferral cannot deadlock]."""

    def late(i):
        time.sleep(0.03 * ((i * (rank + 1)) % 3))
        return i

    @tf.function
    def function(elements):
        def one(i):
            return sdp.allreduce(
                tf.ensure_shape(tf.numpy_function(late, [i], i.dtype, False), []), 0, 1, op=SUM
            )

        return tf.map_fn(one, elements, parallel_iterations=window)

    assert function(tf.range(12)).numpy().tolist() == [i * size for i in range(12)]


def test_tickets_are_in_program_order_through_nested_functions_and_branches():
    @tf.function
    def pair():
        return [op_parts.ticket(), op_parts.ticket()]

    @tf.function
    def function(predicate):
        tickets = pair()
        tickets += tf.cond(predicate, pair, lambda: [op_parts.ticket(), op_parts.ticket()])
        tickets += [op_parts.ticket()]
        tickets += tf.cond(predicate, lambda: [op_parts.ticket()], lambda: [op_parts.ticket() + 0])
        return tf.stack(tickets + pair())

    for predicate in (True, False):
        for _ in range(10):
            tickets = function(tf.constant(predicate)).numpy()
            assert (tickets - tickets[0]).tolist() == list(range(8))


@pytest.mark.parametrize(
    "signature", [None, (tf.TensorSpec((None,), tf.float32),)], ids=["retraced", "one trace"]
)
def test_a_shorter_last_batch_on_one_rank(rank, size, signature):
    """Rank 0's function is traced again for it, with other node names; the others' is not."""
    weight = tf.Variable(2.0, dtype=tf.float32)
    traces = []

    @tf.function(input_signature=signature)
    def step(batch):
        traces.append(batch.shape)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * batch)
        return sdp.DistributedGradientTape(tape, op=SUM).gradient(loss, weight)

    for count in (8, 8, 3, 8):
        mine = count if rank == 0 else 8
        assert float(step(tf.ones((mine,)))) == count + 8 * (size - 1)
    assert len(traces) == (2 if signature is None and rank == 0 else 1)


def test_an_extra_model_on_one_rank_shifts_nothing(rank, size):
    """Rank 0 builds and runs more graphs, without collectives: trace counters differ from now on."""
    if rank == 0:
        extra = tf.function(lambda x: tf.linalg.matvec(tf.ones((3, 3)), x))
        for n in range(3):
            extra(tf.zeros((n + 1, 3)))

    @tf.function
    def function(x):
        return sdp.allreduce(x, 0, 2, op=SUM), sdp.allreduce(x * 2, 1, 2, op=SUM)

    first, second = function(tf.constant(rank + 1.0))
    assert (float(first), float(second)) == (sum_of_ranks(size), 2 * sum_of_ranks(size))


def test_many_steps(rank, size):
    """More steps than any table has places."""

    @tf.function
    def function(x, steps):
        for _ in tf.range(steps):
            x = sdp.allreduce(x, 0, 2) + 0 * sdp.allreduce(x, 1, 2)
        return x

    assert float(function(tf.constant(rank + 1.0), tf.constant(2000))) == sum_of_ranks(size) / size


def test_eager_and_graph_take_turns(rank, size):
    function = tf.function(lambda x: sdp.allreduce(x, 0, 1, op=SUM))
    for i in range(5):
        x = tf.constant(rank + 1.0 + i)
        assert float(function(x)) == float(sdp.allreduce(x, 0, 1, op=SUM)) == sum_of_ranks(size) + i * size
        assert float(sdp.broadcast(x, size - 1)) == size + i


def call(function, _):
    return function()


def branch(function, start):
    return tf.cond(start < 1, function, lambda: tf.zeros([1]))


def loop(function, start):
    return tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, function()), (start, tf.zeros([1])))[1]


def loop_over_a_dataset(function, _):
    @tf.function
    def run():
        result = tf.zeros([1])
        for _ in tf.data.Dataset.range(1):
            result = function()
        return result

    return run()


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("inside_of", [call, branch, loop, loop_over_a_dataset])
@pytest.mark.parametrize(
    "collective",
    [
        lambda x: sdp.allreduce(x, 0, 1, op=SUM),
        lambda x: sdp.oob_allreduce(x, op=SUM),
        lambda x: sdp.broadcast(x, 0) * sdp.size(),
        sdp.allgather,
    ],
    ids=["allreduce", "oob_allreduce", "broadcast", "allgather"],
)
def test_functions_with_variables_of_their_own(rank, size, inside_of, collective):
    """TensorFlow itself does not order them; each rank is late with another one. As two models of a GAN."""
    variables = [tf.Variable([10.0**i]) for i in range(3)]

    def make(number):
        @tf.function
        def function():
            with tf.control_dependencies([delayed(tf.constant(0.0), 30 * ((number + rank) % 3))]):
                value = variables[number] * 1.0
            total = tf.reduce_sum(collective(value), keepdims=True)
            variables[number].assign(value)
            return total

        return function

    functions = [make(number) for number in range(3)]

    @tf.function
    def step(start):
        return [inside_of(function, start) for function in functions]

    assert [float(total[0]) for total in step(tf.constant(0))] == [size * 10.0**i for i in range(3)]
