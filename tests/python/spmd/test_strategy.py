"""tf_smddp.distribute.Strategy: what tf.distribute promises, where the ranks are the replicas.

Keras with it is in test_strategy_keras.py, whole jobs in test_strategy_jobs.py.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal, sum_of_ranks

import tf_smddp as sdp

pytestmark = pytest.mark.slow

EAGER_AND_GRAPH = pytest.mark.parametrize("mode", [lambda f: f, tf.function], ids=["eager", "graph"])
PLAIN_AND_FUNCTION = pytest.mark.parametrize("inner", [lambda f: f, tf.function], ids=["plain", "function"])
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


@pytest.fixture(scope="module")
def strategy():
    return sdp.distribute.Strategy()


def in_replica():
    return tf.distribute.get_replica_context()


def own_rows(rank, columns=2):
    """Rank r has r + 1 rows, all of value r."""
    return tf.fill([rank + 1, columns], float(rank))


def all_rows(size, columns=2):
    return np.concatenate([np.full((rank + 1, columns), rank, np.float32) for rank in range(size)])


def test_it_stands_where_a_strategy_of_tensorflow_does(rank, size, strategy):
    assert isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    assert strategy.num_replicas_in_sync == size
    assert strategy.cluster_resolver.task_id == rank
    gpus = len(tf.config.list_logical_devices("GPU"))
    assert strategy.cluster_resolver.num_accelerators()["GPU"] == gpus
    assert strategy.extended._in_multi_worker_mode() == (size > 1)
    assert strategy.run(lambda: in_replica().replica_id_in_sync_group) == rank
    sdp.distribute.Strategy(["GPU:0", "GPU:1"], cross_device_ops=tf.distribute.NcclAllReduce())
    with pytest.raises(TypeError, match=r"got the option 'clusterresolver', which no strategy of TensorFlow"):
        sdp.distribute.Strategy(clusterresolver=None)


@EAGER_AND_GRAPH
def test_variables_begin_as_rank_0s(rank, strategy, mode):
    """Numbers that each rank draws for itself, at once or later; integers; and a string, which stays."""
    made = []

    @mode
    def make():
        if not made:
            with strategy.scope():
                drawn = tf.random.stateless_normal([3], [rank, 1])
                made.append(tf.Variable(lambda: tf.random.stateless_normal([3], [rank, 1])))
                made.append(tf.Variable(lambda: tf.fill([2], rank + 7), trainable=False))
                made.append(tf.Variable(lambda: tf.strings.as_string(tf.constant(rank)), trainable=False))
                if mode is not tf.function:
                    made.append(tf.Variable(drawn))
        return tf.constant(0)

    make()
    first = tf.random.stateless_normal([3], [0, 1]).numpy()
    assert made[0].numpy().tolist() == first.tolist()
    assert made[1].numpy().tolist() == [7, 7]
    assert made[2].numpy() == str(rank).encode()
    assert all(variable.numpy().tolist() == first.tolist() for variable in made[3:])


@EAGER_AND_GRAPH
def test_reduce(rank, size, strategy, mode):
    @mode
    def reduce():
        values = strategy.run(
            lambda: {
                "scalar": tf.constant(rank + 1.0),
                "rows": own_rows(rank),
                "pair": (tf.constant([rank, 2 * rank]), tf.constant(f"rank {rank}")),
            }
        )
        return (
            strategy.reduce("SUM", {key: values[key] for key in ("scalar", "pair")}, axis=None),
            strategy.reduce(SUM, values, axis=0),
            strategy.reduce(MEAN, values["rows"], axis=0),
            strategy.reduce(MEAN, values["scalar"]),
        )

    total, rows, mean_of_rows, mean = tf.nest.map_structure(lambda each: each.numpy(), reduce())
    assert total["scalar"] == rows["scalar"] == sum_of_ranks(size)
    assert total["pair"][0].tolist() == [sum(range(size)), 2 * sum(range(size))]
    assert total["pair"][1] == f"rank {rank}".encode()
    assert rows["rows"].tolist() == all_rows(size).sum(0).tolist()
    np.testing.assert_allclose(mean_of_rows, all_rows(size).mean(0), 1e-6)
    assert mean == sum_of_ranks(size) / size


@EAGER_AND_GRAPH
def test_gather(rank, size, strategy, mode):
    """Rows of different numbers on axis 0, columns on the last axes."""

    @mode
    def gather():
        rows = strategy.run(lambda: own_rows(rank))
        columns = strategy.run(lambda: tf.transpose(own_rows(rank)))
        middle = strategy.run(lambda: tf.transpose(own_rows(rank))[..., None])
        return (
            strategy.gather(rows, axis=0),
            strategy.gather(columns, axis=1),
            strategy.gather(columns, axis=-1),
            strategy.gather(middle, axis=-2),
        )

    rows, columns, last, middle = gather()
    assert_equal(rows, all_rows(size))
    assert_equal(columns, all_rows(size).T)
    assert_equal(last, all_rows(size).T)
    assert_equal(middle, all_rows(size).T[..., None])


@pytest.mark.min_ranks(2)
def test_a_scalar_cannot_be_gathered(strategy):
    with pytest.raises(ValueError, match="tensors with at least one dimension, but got a scalar"):
        strategy.gather(strategy.run(lambda: tf.constant(1.0)), axis=0)


@EAGER_AND_GRAPH
@PLAIN_AND_FUNCTION
def test_all_reduce_and_all_gather_in_a_replica(rank, size, strategy, mode, inner):
    def step():
        context = in_replica()
        values = {"a": tf.constant(rank + 1.0), "b": [tf.fill([2], rank + 1.0)]}
        slices = tf.IndexedSlices(tf.fill([1, 2], rank + 1.0), tf.constant([rank]), tf.constant([size, 2]))
        return (
            context.all_reduce(SUM, values),
            context.all_reduce(MEAN, values["a"]),
            tf.convert_to_tensor(context.all_reduce(SUM, slices)),
            context.all_gather(own_rows(rank), axis=0),
            context.all_gather({"c": tf.transpose(own_rows(rank))}, axis=1),
        )

    total, mean, slices, rows, columns = mode(lambda: strategy.run(inner(step)))()
    assert total["a"].numpy() == sum_of_ranks(size)
    assert total["b"][0].numpy().tolist() == [sum_of_ranks(size)] * 2
    assert mean.numpy() == sum_of_ranks(size) / size
    assert slices.numpy().tolist() == [[each + 1.0] * 2 for each in range(size)]
    assert_equal(rows, all_rows(size))
    assert_equal(columns["c"], all_rows(size).T)


@EAGER_AND_GRAPH
@PLAIN_AND_FUNCTION
def test_gradients_of_all_reduce_and_all_gather(rank, size, strategy, mode, inner):
    """A gradient of a sum is the sum of the ranks' gradients, and of gathered rows that of the own ones."""

    def step():
        x, rows = tf.constant(rank + 1.0), own_rows(rank)
        with tf.GradientTape() as tape:
            tape.watch([x, rows])
            summed = in_replica().all_reduce(SUM, x)
            gathered = in_replica().all_gather(rows, axis=0)
            loss = (rank + 1.0) * summed + tf.reduce_sum(gathered * tf.range(1.0, 3.0))
        return tape.gradient(loss, [x, rows])

    of_x, of_rows = mode(lambda: strategy.run(inner(step)))()
    assert of_x.numpy() == sum_of_ranks(size)
    assert of_rows.numpy().tolist() == [[size, 2.0 * size]] * (rank + 1)


@EAGER_AND_GRAPH
def test_merge_call_in_functions_within_functions(rank, size, strategy, mode):
    with strategy.scope():
        variable = tf.Variable(1.0)

    def merge(merged, value):
        reduced = merged.extended.reduce_to(SUM, value, destinations=variable)
        merged.extended.update(variable, lambda v, amount: v.assign_add(amount), args=(reduced,))
        return reduced

    @mode
    def step(x):
        return in_replica().merge_call(merge, args=(x + tf.cast(rank, x.dtype),))

    @mode
    def run():
        return strategy.run(mode(lambda: step(tf.constant(1.0))))

    assert run().numpy() == sum_of_ranks(size)
    assert variable.numpy() == 1.0 + sum_of_ranks(size)


@EAGER_AND_GRAPH
def test_a_variable_is_assigned_by_its_aggregation(rank, size, strategy, mode):
    aggregations = tf.VariableAggregation
    with strategy.scope():
        summed = tf.Variable(0.0, aggregation=aggregations.SUM)
        mean = tf.Variable(0.0, aggregation=aggregations.MEAN)
        none = tf.Variable(0.0)

    @mode
    def run():
        def step():
            summed.assign_add(rank + 1.0)
            mean.assign(rank + 1.0)

        strategy.run(step)
        none.assign(5.0)
        return tf.constant(0)

    run()
    assert summed.numpy() == sum_of_ranks(size)
    assert mean.numpy() == sum_of_ranks(size) / size
    assert none.numpy() == 5.0
    assert strategy.extended.update(none, lambda v: v.assign_add(1.0)).numpy() == 6.0
    parts = strategy.extended.update(none, lambda v: v.assign_add(1.0), group=False)
    assert parts[0].numpy() == 7.0


@EAGER_AND_GRAPH
def test_variables_that_are_reduced_where_they_are_read(rank, size, strategy, mode):
    def on_read(aggregation):
        on_read = tf.VariableSynchronization.ON_READ
        return tf.Variable(0.0, synchronization=on_read, aggregation=aggregation, trainable=False)

    with strategy.scope():
        summed, mean = on_read(tf.VariableAggregation.SUM), on_read(tf.VariableAggregation.MEAN)

    @mode
    def run():
        def step():
            summed.assign_add(rank + 1.0)
            mean.assign(rank + 1.0)
            return summed + 0.0

        return strategy.run(step)

    assert run().numpy() == rank + 1.0
    assert summed.numpy() == sum_of_ranks(size)
    assert mean.numpy() == sum_of_ranks(size) / size
    assert mode(lambda: summed.read_value() + mean)().numpy() == sum_of_ranks(size) * (1 + 1 / size)
    summed.assign(6.0)  # each replica gets a part
    assert summed.numpy() == 6.0
    assert strategy.run(lambda: summed.read_value()).numpy() == np.float32(6.0 / size)


def test_a_variable_that_a_v1_graph_reads_twice(rank, size, strategy):
    with tf.Graph().as_default(), strategy.scope(), tf.compat.v1.Session() as session:
        variable = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        add = strategy.run(lambda: variable.assign_add(rank + 1.0))
        twice = variable.read_value() + variable.read_value()
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(strategy.experimental_local_results(add))
        assert session.run(twice) == 2 * sum_of_ranks(size)


@pytest.mark.parametrize("count", [1, 5, 12, 13], ids="count={}".format)
def test_every_element_comes_once(rank, size, strategy, count):
    """Also where the last batch has too few elements for all ranks, or there is no other."""
    dataset = tf.data.Dataset.range(count).batch(2 * size)
    distributed = strategy.experimental_distribute_dataset(dataset)

    @tf.function
    def total():
        summed, steps = tf.constant(0, tf.int64), 0
        for batch in distributed:
            summed += strategy.reduce(SUM, strategy.run(lambda x: tf.reduce_sum(x), args=(batch,)), axis=None)
            steps += 1
        return summed, steps

    summed, steps = total()
    assert summed.numpy() == sum(range(count))
    assert steps.numpy() == -(-count // (2 * size))
    gathered = np.concatenate([strategy.gather(batch, axis=0) for batch in distributed])
    assert sorted(gathered.tolist()) == list(range(count))


@pytest.mark.parametrize("count", [1, 3], ids="files={}".format)
@pytest.mark.parametrize("way", ["names", "interleave", "some"])
def test_every_line_of_files_comes_once(strategy, tmp_path, count, way):
    """Also where there are fewer files than ranks."""
    for file in range(count):
        (tmp_path / f"{file}.txt").write_text("".join(f"{file * 100 + i}\n" for i in range(12)))
    names = sorted(str(path) for path in tmp_path.iterdir())
    files = tf.data.Dataset.list_files(names, seed=1)
    if way == "names":
        lines = tf.data.TextLineDataset(names)
    elif way == "interleave":
        lines = files.interleave(tf.data.TextLineDataset)
    else:  # names whose number is not that of all
        (tmp_path / "not read").write_text("")
        more = tf.data.Dataset.from_tensor_slices([*names, *[str(tmp_path / "not read")] * 4])
        lines = more.take(count).interleave(tf.data.TextLineDataset, num_parallel_calls=2)
        unordered = tf.data.Options()
        unordered.deterministic = False
        lines = lines.with_options(unordered)
    lines = lines.map(tf.strings.to_number).batch(6)
    distributed = strategy.experimental_distribute_dataset(lines)
    found = sdp.allgather_object(values_of(strategy, distributed))
    wanted = [file * 100 + i for file in range(count) for i in range(12)]
    assert sorted(line for each in found for line in each) == wanted


def values_of(strategy, distributed):
    """This rank's."""
    own = [value for each in distributed for value in strategy.experimental_local_results(each)]
    return np.concatenate(own).tolist()


def test_a_data_set_of_each_rank(rank, size, strategy):
    def batches(context):
        assert context.get_per_replica_batch_size(2 * size) == 2
        dataset = tf.data.Dataset.range(12)
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        distributed = strategy.distribute_datasets_from_function(batches)
    assert values_of(strategy, distributed) == list(range(rank, 12, size))


def test_a_data_set_function_that_gives_all_batches_to_each_rank(rank, size, strategy):
    def everything(context):
        return tf.data.Dataset.range(12).batch(2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        distributed = strategy.distribute_datasets_from_function(everything)
    assert values_of(strategy, distributed) == [x for x in range(12) if x // 2 % size == rank]
    texts = [str(each.message) for each in caught if "InputContext" in str(each.message)]
    assert len(texts) == (rank == 0 and size > 1)
    for text in texts:
        assert "'everything' does not use its InputContext" in text
        assert f"reads all data and takes every {size}th batch" in text


def test_values_from_a_function(rank, size, strategy):
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
    )
    assert strategy.reduce(SUM, strategy.run(lambda x: 2.0 * x, args=(values,)), axis=None).numpy() == (
        2.0 * sum_of_ranks(size)
    )


def test_a_checkpoint_is_read_by_all_ranks(tmp_path, rank, size, strategy):
    """From rank 0. All ranks save, since reading a variable that is reduced on read is collective."""

    def variables(value):
        on_read = tf.VariableSynchronization.ON_READ
        aggregation = tf.VariableAggregation.SUM
        with strategy.scope():
            return {
                "weight": tf.Variable([value, 2.0]),
                "count": tf.Variable(0.0, False, synchronization=on_read, aggregation=aggregation),
            }

    saved = variables(1.0)
    strategy.run(lambda: saved["count"].assign_add(rank + 1.0))
    tf.train.Checkpoint(**saved).write(str(tmp_path / "checkpoint"))
    folder = sdp.broadcast_object(str(tmp_path), 0)
    restored = variables(7.0)
    tf.train.Checkpoint(**restored).read(f"{folder}/checkpoint").assert_consumed()
    assert restored["weight"].numpy().tolist() == [1.0, 2.0]
    assert restored["count"].numpy() == sum_of_ranks(size)
    sdp.barrier()  # rank 0's folder stays until all have read it


def test_a_saved_model(tmp_path, rank, size, strategy):
    with strategy.scope():
        module = tf.Module()
        module.weight = tf.Variable([rank + 2.0])
    module.times = tf.function(lambda x: module.weight * x, input_signature=[tf.TensorSpec([1])])
    tf.saved_model.save(module, str(tmp_path))
    assert tf.saved_model.load(str(tmp_path)).times(tf.constant([3.0])).numpy().tolist() == [6.0]
    with strategy.scope():
        loaded = tf.saved_model.load(str(tmp_path))
    assert strategy.run(loaded.times, args=(tf.constant([3.0]),)).numpy().tolist() == [6.0]


@pytest.mark.parametrize("exchanges", ["reduce", "gather", "all_reduce", "all_gather", "variable"])
def test_a_function_that_exchanges_values_is_not_saved(tmp_path, size, strategy, exchanges):
    """As with TensorFlow's strategies: what is saved runs in one process, which has no other ranks."""
    with strategy.scope():
        module = tf.Module()
        module.mean = tf.Variable(
            [0.0],
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )

    @tf.function
    def function():
        ones = tf.ones([1])
        if exchanges == "variable":
            return module.mean.read_value()
        if exchanges == "reduce":
            return strategy.reduce("SUM", ones, axis=None)
        if exchanges == "gather":
            return strategy.gather(ones, axis=0)
        if exchanges == "all_reduce":
            return strategy.run(lambda: in_replica().all_reduce("SUM", ones))
        return strategy.run(lambda: in_replica().all_gather(ones, 0))

    assert function().shape == [size if "gather" in exchanges else 1]
    if size > 1:
        with pytest.raises(ValueError, match="cannot be saved"):
            tf.saved_model.save(module, str(tmp_path), signatures=function.get_concrete_function())


@EAGER_AND_GRAPH
@pytest.mark.parametrize("wrapped", ["DistributedGradientTape", "DistributedOptimizer"])
def test_what_reduces_gradients_too_is_refused(strategy, mode, wrapped):
    with strategy.scope():
        variable = tf.Variable([1.0])
        optimizer = tf.keras.optimizers.SGD(0.1)
        if wrapped == "DistributedOptimizer":
            optimizer = sdp.DistributedOptimizer(optimizer)

    def step():
        with tf.GradientTape() as tape:
            loss = variable * variable
        if wrapped == "DistributedGradientTape":
            tape = sdp.DistributedGradientTape(tape)
        optimizer.apply_gradients([(tape.gradient(loss, [variable])[0], variable)])

    text = f"{wrapped} reduces gradients within tf_smddp.distribute.Strategy, which reduces them, too"
    with pytest.raises(RuntimeError, match=text):
        mode(lambda: strategy.run(step))()
    assert variable.numpy() == [1.0]
