"""Functions that XLA compiles: buffers that are reduced in place, errors, branches and loops, clusters."""

import time

import numpy as np
import pytest
import tensorflow as tf
from modes import clustered, compiled
from values import sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank

LARGE = 1 << 16  # elements: far above what the last rank reduces by itself
SUM = sdp.ReduceOp.SUM


def of(rank, factor=1.0):
    return factor * tf.cast(tf.range(LARGE) % 97 + rank, tf.float32)


def total(size, factor=1.0):
    return factor * (size * (np.arange(LARGE) % 97) + sum(range(size))).astype(np.float32)


def test_a_gradient_that_is_used_beside_its_reduction(rank, size):
    """Before, after, and as a result: XLA copies it then, and the reduction has its own."""

    @compiled
    def function(x):
        raw = [x * 2.0, x + 1.0, tf.sqrt(x) ** 2.0]
        before = [tf.reduce_sum(tensor) for tensor in raw]
        reduced = sdp.grouped_allreduce(raw, op=SUM)
        again = sdp.grouped_allreduce(reduced, op=SUM)
        after = [tensor * 3.0 for tensor in raw]
        return raw, before, reduced, after, again

    for _ in range(3):
        raw, before, reduced, after, again = function(of(rank))
        x = of(rank).numpy()
        np.testing.assert_array_equal(raw[0], x * 2)
        np.testing.assert_array_equal(raw[1], x + 1)
        np.testing.assert_array_equal(after[1], (x + 1) * 3)
        np.testing.assert_allclose(before[0], np.sum(x * 2.0, dtype=np.float64), rtol=1e-5)
        np.testing.assert_array_equal(reduced[0], total(size, 2.0))
        np.testing.assert_array_equal(reduced[1], total(size) + size)
        np.testing.assert_allclose(reduced[2], total(size), rtol=1e-6)
        np.testing.assert_array_equal(again[0], size * total(size, 2.0))


def test_arguments_constants_and_twins(rank, size):
    """Buffers that must not be written to."""
    argument = of(rank)
    variable = tf.Variable(of(rank))

    @compiled
    def function(x):
        constant = tf.ones([LARGE])
        twin = x * 2.0
        return sdp.grouped_allreduce([x, constant, variable, twin, twin, x], op=SUM)

    for _ in range(3):
        results = function(argument)
        for result, factor in zip((results[i] for i in (0, 2, 3, 4, 5)), (1.0, 1.0, 2.0, 2.0, 1.0)):
            np.testing.assert_array_equal(result, total(size, factor))
        np.testing.assert_array_equal(results[1], np.full(LARGE, float(size)))
        np.testing.assert_array_equal(argument, of(rank))
        np.testing.assert_array_equal(variable, of(rank))


def test_nothing_is_copied(rank, size):
    weights = [tf.Variable(tf.ones([256, 256]) * (i + 1)) for i in range(3)]

    @compiled
    def step(x):
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.nn.relu(tf.matmul(y, weight) / 256.0)
            loss = tf.reduce_sum(y)
        for weight, gradient in zip(weights, sdp.DistributedGradientTape(tape).gradient(loss, weights)):
            weight.assign_sub(1e-3 * gradient)

    step(tf.ones([64, 256]))
    sdp.stats(reset=True)
    for _ in range(3):
        step(tf.ones([64, 256]))
    figures = sdp.stats()["collectives"]["allreduce"]
    assert figures["calls"] == 9
    assert figures["staged_bytes"] == 0
    assert figures["in_place_bytes"] == figures["bytes"] == 9 * 256 * 256 * 4


def test_branches_and_loops(rank, size):
    @compiled
    def function(x, many):
        value = sdp.allreduce(x, 0, 1, op=SUM)
        for _ in tf.range(3):
            value = sdp.allreduce(value, 0, 1)
            value += sum(sdp.grouped_allreduce([value, x]))
        return sdp.broadcast(value, 0) if many else -sdp.allreduce(value, 0, 1)

    def alone(many):
        value = float(sum_of_ranks(size))
        for _ in range(3):
            value += value + sum_of_ranks(size) / size
        return value if many else -value

    for many in (True, False):
        np.testing.assert_allclose(function(tf.constant([rank + 1.0]), tf.constant(many)), alone(many), 1e-6)


def test_nested_functions(rank, size):
    """Traced before, and not for XLA; called twice."""
    inner = tf.function(lambda x: sdp.allreduce(x, 0, 1, op=SUM))
    inner(tf.constant([1.0]))
    function = compiled(lambda x: inner(inner(x) + 1.0) + inner(x))
    result = function(tf.constant([rank + 1.0])).numpy()
    assert result == size * (sum_of_ranks(size) + 1) + sum_of_ranks(size)


def test_ranks_that_compile_and_ranks_that_do_not(rank, size):
    """They meet all the same."""

    def function(x):
        return sdp.grouped_allreduce([x, 2.0 * x, x[:3]], op=SUM)

    mode = compiled if rank % 2 else tf.function
    for _ in range(3):
        for result, wanted in zip(mode(function)(of(rank)), (1.0, 2.0, 1.0)):
            np.testing.assert_array_equal(result, total(size, wanted)[: len(result)])


@pytest.mark.min_ranks(2)
def test_ranks_that_run_different_collectives(rank, size):
    """In the middle of a group: the message comes whole, and the next step is well."""

    @compiled
    def function(tensors):
        tensors = sdp.grouped_allreduce([1.0 * tensor for tensor in tensors], op=SUM)
        return sdp.grouped_allreduce(tensors), sdp.oob_allreduce(tensors[0])

    lengths = [LARGE, LARGE + (rank == 1), 3]
    for _ in range(3):
        with pytest.raises(
            tf.errors.InternalError, match=r"different collectives .*rank \d has .*rank \d has "
        ):
            function([tf.ones([length]) for length in lengths])
        (first, *_), _ = function([tf.ones([LARGE])] * 3)
        assert first.numpy().tolist() == [float(size)] * LARGE
    held = sdp.stats()["arena_used_bytes"]
    for _ in range(3):
        with pytest.raises(tf.errors.InternalError, match="different collectives"):
            function([tf.ones([length]) for length in lengths])
        function([tf.ones([LARGE])] * 3)
    # XLA's threads may free a program's last buffers after its end.
    end = time.monotonic() + 10
    while sdp.stats()["arena_used_bytes"] > held + 8 * LARGE and time.monotonic() < end:
        time.sleep(0.01)
    assert sdp.stats()["arena_used_bytes"] <= held + 8 * LARGE


@pytest.mark.min_ranks(2)
def test_a_bad_argument(rank, size):
    """XLA compiles on each rank for itself; what one refuses, the others hear of."""
    constant = [1] * size

    @compiled
    def function(x, splits):
        rows, _ = sdp.alltoall(x, splits if rank == 0 else constant)
        return sdp.allreduce(rows, 0, 1, op=SUM)

    error = tf.errors.InvalidArgumentError if rank == 0 else tf.errors.InternalError
    with pytest.raises(error, match=r"splits that are not known when XLA compiles"):
        function(tf.ones([size, 2]), tf.constant(constant))
    again = compiled(lambda x: sdp.allreduce(sdp.alltoall(x), 0, 1, op=SUM))
    assert again(tf.ones([size, 2])).numpy().tolist() == [[float(size)] * 2] * size


def test_graphs_that_differ_around_the_collectives(rank, size):
    @compiled
    def function(a, b):
        a = a * 2.0 if rank == 0 else a
        return sdp.allreduce(a, 0, 2, op=SUM), sdp.allreduce(b, 1, 2, op=SUM)

    for _ in range(10):
        u, v = function(tf.ones([1000]), tf.fill([1000], 3.0))
        assert u.numpy().tolist() == [size + 1.0] * 1000
        assert v.numpy().tolist() == [3.0 * size] * 1000


def test_after_a_loop(rank, size):
    """It has the same shape as the tensor that the loop reduces, and must not meet that."""

    @compiled
    def function(x):
        y = x
        for _ in tf.range(3):
            y = sdp.allreduce(y, 0, 1)
        return y, sdp.allreduce(y + float(rank), 0, 1, op=SUM)

    for step in range(20):
        y, z = function(tf.fill([1000], float(step + rank)))
        mean = step + (size - 1) / 2
        assert y.numpy().tolist() == [mean] * 1000
        assert z.numpy().tolist() == [size * mean + size * (size - 1) / 2] * 1000


def test_a_shape_that_depends_on_data(rank, size):
    function = compiled(lambda x: sdp.allreduce(tf.boolean_mask(x, x > 1.0), 0, 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="depends on data"):
        function(tf.constant([1.0, 2.0, 3.0]))
    assert compiled(lambda x: sdp.allreduce(x, 0, 1))(tf.ones([])).numpy() == 1.0


def test_many_steps(rank, size):
    """All ranks on few cores, many tensors of all sizes: no deadlock, and the same weights to the bit."""
    weights = [tf.Variable(tf.ones([n])) for n in (3, 5000, 40, 70000, 1, 2000, 9)]

    @compiled
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.sin(weight * x)) for weight in weights])
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(0.01 * gradient)
        return sdp.oob_allreduce(loss), sdp.allreduce(loss, 0, 1)

    for i in range(500):
        losses = step(tf.constant(0.001 * ((i * 7 + rank * 3) % 11)))
    assert losses[0].numpy() == losses[1].numpy()
    for weight in weights:
        for other in sdp.allgather_object(weight.numpy().tobytes()):
            assert other == weight.numpy().tobytes()


def test_auto_clustering_leaves_collectives_out(rank, size):
    """Their ops run as in any graph, so that several are under way at once."""
    traced = tf.function(lambda x: sdp.grouped_allreduce([x * 2.0, x + 1.0])).get_concrete_function(of(rank))
    for op in traced.graph.get_operations():
        if op.type.startswith("Smddp"):
            assert op.get_attr("_XlaCompile") is False
    results = clustered(lambda x: sdp.grouped_allreduce([x * 2.0, x + 1.0], op=SUM))(of(rank))
    np.testing.assert_array_equal(results[0], total(size, 2.0))


def test_overlap_in_a_function_that_is_compiled():
    function = compiled(lambda x: sdp.overlap(x * 2.0) + 1.0)
    with tf.GradientTape() as tape:
        x = tf.constant([1.0, 2.0])
        tape.watch(x)
        y = function(x)
    assert y.numpy().tolist() == [3.0, 5.0]
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: sdp.allreduce(x, 0, 1),
        lambda x: sdp.grouped_allreduce([x, 2.0 * x], op=SUM)[1],
        lambda x: sdp.oob_allreduce(x),
        lambda x: sdp.broadcast(x, 0),
        lambda x: sdp.reducescatter(x, op=SUM),
        lambda x: sdp.allgather(x[sdp.rank() :]),
    ],
    ids=["allreduce", "grouped_allreduce", "oob_allreduce", "broadcast", "reducescatter", "allgather"],
)
def test_the_gradient_of_what_ran_in_eager_mode(rank, size, forward):
    """It is compiled with the function that asks for it, though the ranks' rows may differ."""
    x = tf.fill([2 * size + 1, 2], rank + 1.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = forward(x)
    upstream = tf.fill(y.shape, rank + 2.0)
    wanted = tape.gradient(y, x, output_gradients=upstream)
    found = compiled(lambda upstream: tape.gradient(y, x, output_gradients=upstream))(upstream)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("collective", ["reducescatter", "allgather", "alltoall"])
def test_gradients_of_a_compiled_function_from_outside(rank, size, collective):
    """Rows that don't divide evenly: the gradients of what XLA has compiled know the shapes."""
    rows = 2 * size if collective == "alltoall" else 2 * size + 1
    gather = {
        "reducescatter": lambda x: sdp.reducescatter(x, op=SUM),
        "allgather": sdp.allgather,
        "alltoall": sdp.alltoall,
    }[collective]
    forward = compiled(lambda x: tf.reduce_sum(gather(x)) * (rank + 1.0))

    @tf.function
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = forward(x)
        return tape.gradient(loss, x)

    @tf.function
    def plain(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(gather(x)) * (rank + 1.0)
        return tape.gradient(loss, x)

    x = tf.fill([rows, 3], rank + 1.0)
    np.testing.assert_allclose(function(x), plain(x))


def test_several_steps_in_one_execution(rank, size):
    """Keras runs the compiled step in a loop that is not compiled."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build((None, 2))
    sdp.broadcast_variables(model.variables, root_rank=0)
    optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", jit_compile=True, steps_per_execution=2)
    model.fit(tf.fill([16, 2], rank + 1.0), tf.ones([16, 1]), batch_size=4, verbose=0)
    assert int(optimizer.iterations) == 4
    weights = sdp.allgather(tf.reshape(model.weights[0], [1, 2]))
    np.testing.assert_array_equal(weights, tf.tile(weights[:1], [size, 1]))
