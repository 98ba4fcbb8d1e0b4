"""The comparison of weights in loops, which no setting asks for."""

import gc
import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import compiled, eager, meet, modes

import tf_smddp as sdp
from tf_smddp._graphs import op_parts
from tf_smddp._guards import gradient_use, last_look, loop_check

pytestmark = pytest.mark.min_ranks(2)
PERIOD = loop_check._period


@pytest.fixture
def told(monkeypatch):
    """Each step is compared. Returns what was told of weights that differ."""
    monkeypatch.delenv("SMDDP_CHECK_EVERY", raising=False)
    monkeypatch.setattr(loop_check, "_period", lambda count: count)
    monkeypatch.setattr(gradient_use, "_seen", gradient_use._Seen())
    loop_check._state.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(each.message) for each in caught if "ranks' weights differ: " in str(each.message)]
    loop_check._state.forget()


def make_weights(*names):
    weights = [tf.Variable([float(i), 2.0], name=name) for i, name in enumerate(names or ("first", "second"))]
    sdp.broadcast_variables(weights, 0)
    return weights


def make_step(mode, weights, rate=0.1, fail=None):
    @mode
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(x * weight) for weight in weights])
            if fail is not None:
                loss += tf.py_function(fail, [], tf.float32)
        for weight, gradient in zip(weights, sdp.DistributedGradientTape(tape).gradient(loss, weights)):
            weight.assign_sub(rate * gradient)

    return step


X = tf.constant([1.0, 1.0])


@modes(eager, tf.function, compiled)
def test_a_drift_is_told_once(rank, size, mode, told):
    weights = make_weights()
    step = make_step(mode, weights)
    for _ in range(3):
        step(X * float(rank))
    assert not told()
    if rank == size - 1:
        weights[1].assign_add([0.0, 1e-6])
    for _ in range(3):
        step(X)
    assert len(told()) == (rank == 0)
    for text in told():
        assert f"1 of 2 trained variables, first 'second:0' of rank {size - 1} from rank 0's" in text, text


@modes(eager, tf.function)
def test_an_optimizer_that_does_not_reduce(rank, mode, told):
    weights, (other,) = make_weights(), make_weights("other")
    step = make_step(mode, weights)
    for _ in range(3):
        other.assign_sub([0.1 * rank, 0.0])
        step(X)
    assert len(told()) == (rank == 0)
    assert all("1 of 3 trained variables, first 'other:0' of rank 1" in text for text in told())


def test_what_may_differ(rank, told):
    """Variables of a process set, ones that are not trained, and ones that one rank alone still has."""
    weights = make_weights()
    kept = make_weights("kernel", "kernel", "kernel")
    (apart,) = make_weights("apart")
    frozen = tf.Variable([1.0], trainable=False)
    sdp.broadcast_variables([frozen], 0)
    gradient_use.note_apart([apart])
    apart.assign([float(rank), 0.0])
    frozen.assign([float(rank)])
    del kept[rank]  # of the same names, so only their places tell them apart
    gc.collect()
    step = make_step(tf.function, weights)
    for _ in range(3):
        step(X)
    assert not told()


@pytest.mark.parametrize("setting", ["0", "7"])
def test_the_setting_turns_it_off(rank, setting, told, monkeypatch):
    monkeypatch.setenv("SMDDP_CHECK_EVERY", setting)
    weights = make_weights()
    step = make_step(tf.function, weights)
    for _ in range(3):
        step(X)
        weights[0].assign([float(rank), 0.0])
    assert not told()


@pytest.mark.parametrize("is_embedding", [False, True])
def test_a_large_variable(rank, is_embedding, told):
    """Some rows are compared, others each time."""
    table = tf.Variable(tf.zeros([300_000, 2]))
    sdp.broadcast_variables([table], 0)
    step = make_step(tf.function, make_weights())
    if is_embedding:
        with tf.GradientTape() as tape:
            row = tf.nn.embedding_lookup(table, [0])
        sdp.DistributedGradientTape(tape).gradient(row, [table])
    step(X)
    assert not told()
    table.assign_add(tf.fill([300_000, 2], float(rank)))
    step(X)
    assert len(told()) == (rank == 0)


def test_large_variables_are_still_read_without_copies(told):
    weights = [tf.Variable(tf.zeros([300, 300]), name="large")]
    sdp.broadcast_variables(weights, 0)
    step = make_step(tf.function, weights)
    for _ in range(3):
        step(tf.zeros([300, 300]))
    reads = [weights[0].value() for _ in range(2)]  # at a time
    assert len({np.asarray(memoryview(read)).ctypes.data for read in reads}) == 1
    assert not told()


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float64])
@pytest.mark.parametrize("shape", [[], [0], [3, 2]])
def test_types_and_shapes(dtype, shape, told):
    variable = tf.Variable(tf.zeros(shape, dtype))
    sdp.broadcast_variables([variable], 0)
    make_step(tf.function, make_weights())(X)
    assert not told()


@pytest.mark.min_ranks(3)
def test_a_rank_that_leaves_does_not_part_from_the_others(rank, size, told):
    """Ranks 0 and others are told of a drift while rank 1 has left; it is back in the next epoch."""
    weights = make_weights()
    step = make_step(tf.function, weights, rate=0.0)
    for _epoch in range(3):
        with sdp.join(weights):
            for _ in range(1 if rank == 1 else 4):
                step(X)
        if rank == 0:
            weights[0].assign_add([1e-3, 0.0])
        meet()
    assert len(told()) == (rank == 0)


@pytest.mark.parametrize("repeats", [False, True])
def test_a_step_that_fails_on_one_rank(rank, size, repeats, told):
    """The steps that follow are compared on all ranks or on none."""
    fails, weights = [], make_weights()

    def fail():
        if fails:
            raise ValueError(fails.pop())
        return 0.0

    step = make_step(tf.function, weights, rate=0.0, fail=fail)
    random = np.random.default_rng(7)
    for _ in range(12):
        step(X)
        if random.integers(0, size) == rank:
            fails.append("disk full")
            with pytest.raises(tf.errors.OpError, match="disk full"):
                step(X)
        step(X)
    assert not told()
    incarnations = sdp.allgather(tf.constant([op_parts.next_ticket()], tf.int64)).numpy()
    assert len(set(map(tuple, incarnations.tolist()))) == 1, incarnations


def test_a_function_without_gradients_on_one_rank_alone(rank, told):
    """Its collective is in a branch that is not taken, or meets an eager one of the other ranks."""
    step = make_step(tf.function, make_weights())

    @tf.function
    def metric(x, shared):
        return tf.cond(shared, lambda: sdp.allreduce(x), lambda: x)

    for _ in range(3):
        step(X)
        if rank == 0:
            metric(X, tf.constant(False))
            metric(X, tf.constant(True))
        else:
            sdp.allreduce(X)
    assert not told()


def test_functions_that_one_rank_runs_eagerly(rank, told):
    step = make_step(tf.function, make_weights())
    tf.config.run_functions_eagerly(rank == 0)
    try:
        for _ in range(3):
            step(X)
    finally:
        tf.config.run_functions_eagerly(False)
    assert not told()


def test_a_step_that_reduces_and_then_fails_on_one_rank(rank, told):
    """Its data ends behind the reduction, and the script catches it: the other ranks' steps succeed."""
    weights = make_weights()
    batches = iter(tf.data.Dataset.range(rank + 2))

    @tf.function
    def step(x, batches):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * weights[0])
        (gradient,) = sdp.DistributedGradientTape(tape).gradient(loss, weights[:1])
        weights[0].assign_sub(gradient)
        with tf.control_dependencies([gradient]):
            return next(batches)

    for number in range(6):
        try:
            step(X, batches)
            assert number != rank + 2
        except tf.errors.OutOfRangeError:
            assert number == rank + 2
            batches = iter(tf.data.Dataset.range(10))
    assert not told()
    weights[0].assign_add([float(rank), 0.0])
    step(X, batches)
    assert len(told()) == (rank == 0)


def test_a_broadcast_in_a_function_that_one_rank_traces_earlier(rank, told):
    """Its variables are not compared, since nothing tells the ranks which one is which."""
    inside = [tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])]
    begin = tf.function(lambda _: sdp.broadcast_variables(inside, 0))
    if rank == 0:
        begin.get_concrete_function(1)
    weights = make_weights()
    begin(1)
    begin(2 if rank == 0 else 1)
    step = make_step(tf.function, weights)
    step(X)
    assert not told()
    weights[0].assign([float(rank), 0.0])
    step(X)
    assert len(told()) == (rank == 0)


def test_a_variable_that_is_broadcast_in_a_function_and_then_eagerly(rank, told):
    weights = [tf.Variable([1.0, 2.0])]
    tf.function(lambda: sdp.broadcast_variables(weights, 0))()
    sdp.broadcast_variables(weights, 0)
    step = make_step(tf.function, weights, rate=0.0)
    step(X)
    assert not told()
    weights[0].assign([float(rank), 0.0])
    step(X)
    assert len(told()) == (rank == 0)


def test_calls_that_do_not_wait_for_their_end(rank, told):
    """Their tickets are drawn at any time, so nothing is compared."""
    weights = make_weights()
    step = make_step(tf.function, weights, rate=0.0)
    step(X)
    weights[0].assign([float(rank), 0.0])
    tf.config.experimental.set_synchronous_execution(False)
    try:
        for _ in range(20):
            step(X)
        tf.experimental.async_clear_error()
    finally:
        tf.config.experimental.set_synchronous_execution(True)
    assert not told()
    step(X)
    assert len(told()) == (rank == 0)


def test_a_step_of_a_saved_model(rank, told, tmp_path):
    module = tf.Module()
    module.weights = make_weights()
    step = make_step(tf.function, module.weights, rate=0.0)
    module.step = tf.function(lambda x: step(x), input_signature=[tf.TensorSpec([2])])
    tf.saved_model.save(module, str(tmp_path / str(rank)))
    loaded = tf.saved_model.load(str(tmp_path / str(rank)))
    sdp.broadcast_variables(loaded.weights, 0)
    loaded.step(X)
    assert not told()
    loaded.weights[1].assign([float(rank), 0.0])
    loaded.step(X)
    assert len(told()) == (rank == 0)


@pytest.mark.parametrize("mode", [eager, tf.function])
def test_what_one_rank_missed_while_it_had_left(rank, mode, told, monkeypatch):
    """The ranks have compared while rank 1 was not there, and join() itself draws tickets."""
    monkeypatch.setattr(loop_check, "_period", lambda count: count // 7)
    weights = make_weights()
    step = make_step(mode, weights, rate=0.0)
    for epoch in range(4):
        with sdp.join(weights):
            for _ in range(2 if rank == 1 else 9 + epoch):
                step(X)
    assert not told()
    weights[0].assign([float(rank), 0.0])
    for _ in range(8):
        step(X)
    assert len(told()) == (rank == 0)


def test_what_runs_around_a_step(rank, told):
    """An active persistent tape, and functions with steps in loops."""
    weights, _others = make_weights(), make_weights()
    step = make_step(tf.function, weights)

    @tf.function
    def steps(x):
        for _ in tf.range(3):
            step(x)

    with tf.GradientTape(persistent=True) as tape:
        for _ in range(3):
            steps(X)
            loss = tf.reduce_sum(weights[0] * X)
    assert tape.gradient(loss, weights[0]).numpy().tolist() == [1.0, 1.0]
    assert {each.ref() for each in tape.watched_variables()} == {each.ref() for each in weights}
    assert not told()


def test_when(rank):
    passed = [count for count in range(1, 5000) if PERIOD(count) != PERIOD(count - 1)]
    assert passed == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 3000, 4000]


def test_a_weight_that_is_not_finite(rank, told):
    from tf_smddp._guards.periodic_check import _state

    _state.told_of_weights = False
    weights = make_weights()
    weights[1].assign([float("nan"), 0.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_step(tf.function, weights)(X)
        last_look._look()
    texts = [str(each.message) for each in caught if "not finite" in str(each.message)]
    assert len(texts) == (rank == 0) and all("'second:0'" in text for text in texts), texts
    assert not told()
