"""A step that fails on one rank: every rank gets an error, all try again, and then everything is right.

The failing rank takes turns. After an error the ranks agree on the step with which they go on, as a script
would that goes back to its last checkpoint.
"""

import time

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

SUM, MIN = sdp.ReduceOp.SUM, sdp.ReduceOp.MIN
ROUNDS = 20
BEFORE, BETWEEN, AFTER = 1, 2, 3
TEXT = "the disk is full"


def delayed_by(value, milliseconds):
    def wait(x, milliseconds):
        time.sleep(float(milliseconds) / 1000)
        return x

    return tf.ensure_shape(tf.numpy_function(wait, [value, milliseconds], value.dtype), value.shape)


def check_disk(bad, place):
    return tf.debugging.Assert(tf.not_equal(bad, place), [TEXT])


def step(x, bad):
    """Three collectives in two groups and a sequence; `bad` says where it fails, 0 nowhere."""
    with tf.control_dependencies([check_disk(bad, BEFORE)]):
        x = tf.identity(x)
    total = sdp.allreduce(x, 0, 1, op=SUM, name="total")
    with tf.control_dependencies([total]), tf.control_dependencies([check_disk(bad, BETWEEN)]):
        x = tf.identity(x)
    rows = sdp.allgather(x, name="rows")
    root = sdp.broadcast(x, sdp.size() - 1, name="root")
    with tf.control_dependencies([total, rows, root]), tf.control_dependencies([check_disk(bad, AFTER)]):
        return tf.identity(total), tf.identity(rows), tf.identity(root)


def eager_step(x, bad):
    """Python fails here, and no op. The others hear of it when collectives don't fit together any more."""
    results = []
    for place, collective in (
        (BEFORE, lambda: sdp.allreduce(x, 0, 1, op=SUM)),
        (BETWEEN, lambda: sdp.allgather(x)),
        (AFTER, lambda: sdp.alltoall(tf.repeat(x, sdp.size()))[-1:]),
    ):
        if int(bad) == place:
            raise OSError(TEXT)
        results.append(collective())
    return results


def agree(completed):
    """The number of steps that all ranks have completed. Gets what errors there still are."""
    while True:
        try:
            return int(sdp.allreduce(completed, 0, 1, op=MIN))
        except tf.errors.OpError:
            continue


def run(run_step, rank, size, places):
    """Does ROUNDS steps, each of which fails at first, on one rank; returns this rank's errors by step.

    A rank fails in its step until it has got that error, and not another rank's.
    """
    errors = [[] for _ in range(ROUNDS)]
    still_bad = {number: places[number % len(places)] for number in range(ROUNDS) if number % size == rank}
    completed = 0
    while completed < ROUNDS:
        while completed < ROUNDS:
            try:
                value = 10.0 * completed
                total, rows, root = run_step(tf.constant([value + rank]), still_bad.get(completed, 0))
                assert [float(x) for x in total] == [value * size + sum(range(size))]
                assert [float(x) for x in rows] == [value + r for r in range(size)]
                assert [float(x) for x in root] == [value + size - 1]
                completed += 1
            except (tf.errors.OpError, OSError) as error:
                errors[completed].append(str(error))
                if isinstance(error, (tf.errors.InvalidArgumentError, OSError)):
                    del still_bad[completed]
                completed = agree(completed)
        completed = agree(completed)
    return errors


def check(errors, rank, size, place):
    """The failing rank has its own error, the others have it from that rank."""
    for number, texts in enumerate(errors):
        if number % size == rank:
            assert any(TEXT in text for text in texts), (number, texts)
        elif place != BEFORE:
            # The others may have completed the step; then they have the error in the next one.
            found = texts + (errors[number + 1] if number + 1 < ROUNDS else [f"rank {number % size} {TEXT}"])
            assert any(TEXT in text and f"rank {number % size}" in text for text in found), (number, found)


@pytest.mark.parametrize("place", [BEFORE, BETWEEN, AFTER], ids=["before", "between", "after"])
def test_function(rank, size, place):
    function = tf.function(step)
    errors = run(lambda x, bad: function(x, tf.constant(bad)), rank, size, [place])
    check(errors, rank, size, place)


def test_function_at_changing_places(rank, size):
    function = tf.function(step)
    errors = run(lambda x, bad: function(x, tf.constant(bad)), rank, size, [BETWEEN, AFTER, BEFORE])
    assert all(texts for texts in errors[rank::size])


def test_nested_functions(rank, size):
    """One that is inlined, and one that is not, whose steps have another number in TensorFlow."""
    apart = tf.function(step, experimental_attributes={"_noinline": True})
    inlined = tf.function(step)

    @tf.function
    def function(x, bad, bad_apart):
        first = apart(x, bad_apart)
        with tf.control_dependencies(first):
            return inlined(x, bad)

    turn = iter(range(10 * ROUNDS))

    def run_step(x, bad):
        in_apart = next(turn) % 2 == 0
        return function(x, tf.constant(0 if in_apart else bad), tf.constant(bad if in_apart else 0))

    run(run_step, rank, size, [BETWEEN, AFTER])


def test_all_ranks_fail_by_themselves_before_nested_functions(rank, size):
    """Each by its own check, which is late on one rank: its nested functions must not begin before it."""
    everyone = sdp.add_process_set(range(size))
    count, bad = tf.Variable(0), tf.Variable(0)

    def nested(process_set):
        def function(x):
            count.assign_add(1)
            return sdp.allreduce(x, 0, 1, op=SUM, process_set=process_set)

        return tf.function(function)

    in_world, in_set = nested(None), nested(everyone)

    @tf.function
    def function(x, milliseconds):
        check_disk(delayed_by(tf.identity(bad), milliseconds), BEFORE)
        return in_set(x) + in_world(2 * x)

    for number in range(ROUNDS):
        bad.assign(BEFORE)
        with pytest.raises(tf.errors.InvalidArgumentError, match=TEXT):
            function(tf.constant(1.0), tf.constant(30.0 if number % size == rank else 0.0))
        bad.assign(0)
        assert float(function(tf.constant(1.0), tf.constant(0.0))) == 3 * size
    assert int(count) == 2 * ROUNDS
    sdp.remove_process_set(everyone)


def test_eager(rank, size):
    run(eager_step, rank, size, [BEFORE, BETWEEN, AFTER])


def test_gradients_in_a_function(rank, size):
    """The forward pass fails, where the ticket may have been drawn or not; or the update."""
    weight = tf.Variable([1.0])

    @tf.function
    def train(x, bad):
        with tf.GradientTape() as tape, tf.control_dependencies([check_disk(bad, BEFORE)]):
            loss = tf.reduce_sum(weight * x)
        gradient = sdp.DistributedGradientTape(tape, op=SUM).gradient(loss, weight)
        with tf.control_dependencies([gradient]), tf.control_dependencies([check_disk(bad, AFTER)]):
            total = tf.identity(gradient)
        rows = sdp.allgather(x)
        return total, rows, sdp.broadcast(x, sdp.size() - 1)

    run(lambda x, bad: train(x, tf.constant(bad)), rank, size, [BEFORE, AFTER])


@pytest.mark.parametrize("place", [BEFORE, BETWEEN, AFTER], ids=["before", "between", "after"])
def test_v1_session(rank, size, place):
    with tf.Graph().as_default() as graph:
        x, bad = tf.compat.v1.placeholder(tf.float32, [1]), tf.compat.v1.placeholder(tf.int32, [])
        results = step(x, bad)
    session = tf.compat.v1.Session(graph=graph)
    errors = run(lambda value, now: session.run(results, {x: value.numpy(), bad: now}), rank, size, [place])
    session.close()
    check(errors, rank, size, place)


def test_v1_session_that_ends_with_a_broadcast(rank, size):
    """Nothing but the broadcast is left to do when it fails."""
    with tf.Graph().as_default() as graph:
        x, bad = tf.compat.v1.placeholder(tf.float32, [1]), tf.compat.v1.placeholder(tf.int32, [])
        total, rows = sdp.allreduce(x, 0, 1, op=SUM), sdp.allgather(x)
        with tf.control_dependencies([total, rows]), tf.control_dependencies([check_disk(bad, BETWEEN)]):
            root = sdp.broadcast(tf.identity(x), size - 1)
    session = tf.compat.v1.Session(graph=graph)
    errors = run(
        lambda value, now: session.run((total, rows, root), {x: value.numpy(), bad: now}),
        rank,
        size,
        [BETWEEN],
    )
    session.close()
    check(errors, rank, size, BETWEEN)


def test_an_op_that_is_refused(rank, size):
    """Where the ranks disagree, too, all get an error and go on."""
    function = tf.function(lambda x: sdp.allreduce(x, 0, 1, op=SUM), reduce_retracing=True)
    for number in range(ROUNDS):
        wrong = number % size == rank and size > 1
        x = tf.ones([2 if wrong else 1])
        if size > 1:
            with pytest.raises(tf.errors.InternalError, match="the ranks run different collectives"):
                (function if number % 2 else function.python_function)(x)
        assert function(tf.ones([1])).numpy().tolist() == [size]


def test_many_failures_leave_nothing_behind(rank, size):
    """No thread, no descriptor for each."""

    def resources():
        import os

        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    function = tf.function(step)
    run(lambda x, bad: function(x, tf.constant(bad)), rank, size, [BETWEEN])
    before = resources()
    for _ in range(3):
        run(lambda x, bad: function(x, tf.constant(bad)), rank, size, [BETWEEN])
    after = resources()
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 1
