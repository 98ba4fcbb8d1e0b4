"""tf_smddp.horovod.tensorflow: Horovod's names, arguments and defaults."""

import socket
import warnings

import numpy as np
import pytest
import tensorflow as tf
from modes import eager, modes
from values import assert_equal

import tf_smddp as sdp
import tf_smddp.horovod.tensorflow as hvd
import tf_smddp.horovod.tensorflow.keras as hvd_keras
from tf_smddp._guards import gradient_use
from tf_smddp.horovod.tensorflow import _environment

# The names of Horovod 0.28 that scripts use. docs/horovod.md says what else there is, and why it is not here.
NAMES = {
    *("Average", "Sum", "Min", "Max", "Product", "Compression", "SyncBatchNormalization"),
    *("ProcessSet", "global_process_set", "add_process_set", "remove_process_set", "process_set_included_op"),
    *("init", "shutdown", "is_initialized", "start_timeline", "stop_timeline", "is_homogeneous"),
    *("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"),
    *("rank_op", "local_rank_op", "size_op", "local_size_op"),
    *("mpi_threads_supported", "mpi_enabled", "mpi_built", "gloo_enabled", "gloo_built", "nccl_built"),
    *("ddl_built", "ccl_built", "cuda_built", "rocm_built"),
    *("allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "broadcast_"),
    *("alltoall", "reducescatter", "grouped_reducescatter", "barrier", "join"),
    *("broadcast_variables", "broadcast_global_variables", "broadcast_object", "broadcast_object_fn"),
    *("allgather_object", "DistributedGradientTape", "PartialDistributedGradientTape"),
    *("Adasum", "elastic", "DistributedOptimizer", "BroadcastGlobalVariablesHook"),
}


def of(rank, *shape):
    return tf.constant(np.arange(1, 1 + np.prod(shape)).reshape(shape) * (rank + 1), tf.float32)


def total(size):
    return float(sum(range(1, size + 1)))


def test_the_names():
    assert set(hvd.__all__) == NAMES
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert all(hasattr(hvd_keras, name) for name in hvd_keras.__all__)
    assert all(hasattr(hvd.mpi_ops, name) for name in hvd.mpi_ops.__all__)
    assert hvd.mpi_ops.Sum is hvd.Sum and hvd.mpi_ops.rank is hvd.rank
    assert hvd.init() is None  # the second time; with tf_smddp's init() before it
    with pytest.raises(ValueError, match=r"hvd.init\(\) takes no comm, but got \[0\]"):
        hvd.init([0])


@pytest.mark.parametrize("arguments", [{"process_sets": "dynamic"}, {"comm": []}], ids=str)
def test_arguments_of_init_that_change_nothing(arguments):
    """The process sets of the first init(): tests/python/test_horovod_jobs.py."""
    assert hvd.init(**arguments) is None
    with pytest.raises(ValueError, match=r"takes process_sets=\[hvd.ProcessSet\(ranks\), ...\] .* 'static'"):
        hvd.init(process_sets="static")


def test_the_numbers(rank, size):
    """They follow from the hosts of all ranks; tools/test_parts.py runs this on two hosts, too."""
    hvd.init()  # tf_smddp's own came before it
    hosts = sdp.allgather_object(socket.gethostname())
    locals_of = [hosts[:each].count(host) for each, host in enumerate(hosts)]
    peers = [each for each in range(size) if locals_of[each] == locals_of[rank]]
    assert (hvd.rank(), hvd.size()) == (rank, size)
    assert (hvd.local_rank(), hvd.local_size()) == (locals_of[rank], hosts.count(hosts[rank]))
    assert (hvd.cross_rank(), hvd.cross_size()) == (peers.index(rank), len(peers))
    assert hvd.is_homogeneous() == (len({hosts.count(host) for host in hosts}) == 1)
    found = [int(op()) for op in (hvd.rank_op, hvd.size_op, hvd.local_rank_op, hvd.local_size_op)]
    assert found == [rank, size, locals_of[rank], hosts.count(hosts[rank])]
    assert int(hvd.process_set_included_op()) == 1
    assert hvd.mpi_enabled() == (len(set(hosts)) > 1)
    assert hvd.mpi_threads_supported() and not hvd.gloo_built()


@modes(eager, tf.function)
def test_allreduce(rank, size, mode):
    x = of(rank, 2, 3)
    for arguments, factor in (
        ({}, total(size) / size),
        ({"op": hvd.Average}, total(size) / size),
        ({"op": hvd.Sum}, total(size)),
        ({"average": False}, total(size)),
        ({"average": True, "compression": hvd.Compression.fp16}, total(size) / size),
        ({"op": hvd.Max}, size),
        ({"op": hvd.Min}, 1),
        ({"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 4.0}, 2 * total(size)),
    ):
        result = mode(lambda tensor, arguments=arguments: hvd.allreduce(tensor, **arguments))(x)
        np.testing.assert_allclose(result, of(0, 2, 3) * factor, rtol=1e-6)
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(x, average=True, op=hvd.Sum)
    results = mode(lambda tensor: hvd.grouped_allreduce([tensor, tensor * 2.0], op=hvd.Sum))(x)
    np.testing.assert_allclose(results[1], of(0, 2, 3) * 2.0 * total(size))


def test_rows_are_gathered(rank, size):
    slices = tf.IndexedSlices(of(rank, 1, 2), tf.constant([rank], tf.int64), tf.constant([size, 2], tf.int64))
    found = hvd.allreduce(slices)
    assert_equal(found.indices, np.arange(size), "indices")
    np.testing.assert_allclose(found.values, [[(r + 1) / size, 2 * (r + 1) / size] for r in range(size)])
    with pytest.raises(NotImplementedError, match="only Sum and Average"):
        hvd.allreduce(slices, op=hvd.Max)


def test_the_other_collectives(rank, size):
    assert_equal(hvd.allgather(of(rank, 1, 2)), np.concatenate([of(r, 1, 2) for r in range(size)]))
    assert_equal(hvd.grouped_allgather([of(rank, 1)])[0], np.arange(1, size + 1, dtype=np.float32))
    assert_equal(hvd.broadcast(of(rank, 2), size - 1), of(size - 1, 2).numpy())
    variables = [tf.Variable(of(rank, 2)), tf.Variable(of(rank, 3))]
    assert hvd.broadcast_(variables, 0)[1] is variables[1]
    assert_equal(variables[0].numpy(), of(0, 2).numpy())
    assert_equal(
        hvd.reducescatter(of(rank, size), op=hvd.Sum), np.array([(rank + 1) * total(size)], np.float32)
    )
    assert_equal(hvd.reducescatter(of(rank, size)), np.array([(rank + 1) * total(size) / size], np.float32))
    rows, received = hvd.alltoall(of(rank, size), splits=[1] * size)
    assert_equal(received, np.ones(size, np.int32))
    assert_equal(rows, hvd.alltoall(of(rank, size)).numpy())
    assert hvd.broadcast_object({"from": rank}, root_rank=size - 1) == {"from": size - 1}
    assert hvd.broadcast_object_fn(root_rank=0)(rank) == 0
    assert hvd.allgather_object(rank) == list(range(size))
    hvd.barrier()


@modes(eager, tf.function)
def test_the_tapes(rank, size, mode):
    shared, own = tf.Variable([1.0, 1.0]), tf.Variable([2.0])
    layer = type("Layer", (), {"trainable_weights": [own]})()

    @mode
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(shared * x) + tf.reduce_sum(own * x[:1])
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
        return tape.gradient(loss, [shared, own])

    of_shared, of_own = gradients(of(rank, 2))
    np.testing.assert_allclose(of_shared, [total(size) / size, 2 * total(size) / size], rtol=1e-6)
    np.testing.assert_allclose(of_own, [(rank + 1) / size], rtol=1e-6)
    with pytest.raises(ValueError, match="op != Average"):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)


def test_sparse_gradients_are_gathered_by_default(rank, size):
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [rank % 4]))
    gradient = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices) and gradient.values.shape[0] == size


@pytest.mark.parametrize("mean", [False, True])
def test_the_optimizer_adds_passes_up_by_default(rank, size, mean):
    weight = tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0),
        backward_passes_per_step=2,
        average_aggregated_gradients=mean,
    )
    for factor in (1.0, 3.0):
        optimizer.minimize(lambda factor=factor: factor * (rank + 1) * weight, var_list=[weight])
    expected = 1.0 - 4.0 * total(size) / size / (2 if mean else 1)
    np.testing.assert_allclose(weight, [expected], rtol=1e-6)


def test_a_process_set_given_twice_is_an_error():
    with pytest.raises(ValueError, match=r"process set of the ranks \[0\] twice"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])


def test_process_sets_of_tape_and_optimizer(rank, size):
    first = hvd.add_process_set([0])
    weight = tf.Variable([1.0])
    if first.included():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(5.0 * weight)
        gradient = hvd.DistributedGradientTape(tape, process_set=first).gradient(loss, weight)
        np.testing.assert_allclose(gradient, [5.0])
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), process_set=first
        )
        optimizer.minimize(lambda: 2.0 * weight, var_list=[weight])
        np.testing.assert_allclose(weight, [-1.0])
    assert hvd.remove_process_set(first)


def test_keras(rank, size, tmp_path):
    assert float(hvd_keras.allreduce(float(rank + 1), op=hvd.Sum)) == total(size)
    assert hvd_keras.broadcast([rank], 0).numpy().tolist() == [0]
    assert hvd_keras.allgather([rank]).numpy().tolist() == list(range(size))
    with tf.Graph().as_default(), tf.compat.v1.Session():
        assert hvd_keras.allgather([rank]).tolist() == list(range(size))
    in_a_function = tf.function(lambda x: (hvd_keras.allreduce(x, op=hvd.Sum), hvd_keras.allgather([x])))
    reduced, gathered = in_a_function(tf.constant(rank + 1))
    assert int(reduced) == total(size) and gathered.numpy().tolist() == list(range(1, size + 1))
    with tf.Graph().as_default():
        if not hasattr(tf.compat.v1.keras.backend, "get_session"):
            with pytest.raises(RuntimeError, match="computed in a session, but there is none"):
                hvd_keras.allreduce(1.0)
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((3,)), tf.keras.layers.Dense(2)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    features = np.ones((8, 3), np.float32) * (rank + 1)
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
    ]
    model.fit(features, features[:, :2], batch_size=4, verbose=0, callbacks=callbacks)
    weights = model.get_weights()
    for mine, roots in zip(weights, sdp.broadcast_object(weights)):
        np.testing.assert_array_equal(mine, roots)
    model.save(tmp_path / "model.keras")
    loaded = hvd_keras.load_model(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="is distributed already"):
        sdp.DistributedOptimizer(loaded.optimizer)


def test_join(rank, size):
    for _ in range(rank):  # each rank has one step more than the one before it
        hvd.allreduce(tf.constant(1.0))
    last = hvd.join()
    assert last == size - 1
    assert float(hvd.broadcast(tf.constant(float(rank)), last)) == last


def test_gradients_are_scaled_as_horovods(rank, size):
    x = tf.ones([size], tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        gathered = hvd.allgather(x)
        scattered = hvd.reducescatter(x, op=hvd.Sum)
        of_root = hvd.broadcast(x, 0)
    np.testing.assert_allclose(tape.gradient(gathered, x), np.ones(size), rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(scattered, x), np.full(size, float(size)))
    np.testing.assert_allclose(tape.gradient(of_root, x), np.full(size, float(rank == 0)), rtol=1e-14)


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [tf.int32, tf.float32], ids=lambda dtype: dtype.name)
def test_factors_that_are_not_finite(factor, dtype, size):
    x = tf.ones([size], dtype)
    for collective, tensors in (
        (hvd.allreduce, x),
        (hvd.grouped_allreduce, [x]),
        (hvd.reducescatter, x),
        (hvd.grouped_reducescatter, [x]),
    ):
        for name in ("prescale_factor", "postscale_factor"):
            with pytest.raises(ValueError, match=f"needs a finite {name}, but got {factor}"):
                collective(tensors, op=hvd.Sum, **{name: factor})


def test_factors_of_integers_and_groups_with_rows(rank, size):
    x = tf.constant([10, 11], tf.int32)
    assert_equal(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.25), np.array([2, 2], np.int32) * size)
    assert_equal(
        hvd.reducescatter(tf.repeat(11, size), op=hvd.Sum, postscale_factor=0.5),
        np.array([int(11 * size * 0.5)], np.int32),
    )
    slices = tf.IndexedSlices(of(rank, 1, 2), tf.constant([rank], tf.int64))
    rows, dense = hvd.grouped_allreduce([slices, of(rank, 2)], op=hvd.Sum)
    assert_equal(rows.indices, np.arange(size), "indices")
    np.testing.assert_allclose(dense, of(0, 2) * total(size))


def test_variables_of_horovod():
    """Their effect on a job: test_horovod_jobs.py."""
    found = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "7",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "x",
        "HOROVOD_LOG_LEVEL": "TRACE",
        "HOROVOD_TIMELINE": "DYNAMIC",
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_RANK": "0",
    }
    _environment.apply_settings(found)
    ours = {name: value for name, value in found.items() if name.startswith("SMDDP_")}
    assert ours == {"SMDDP_STALL_WARNING": "7", "SMDDP_LOG_LEVEL": "debug"}
    assert _environment.timeline(found) is None and _environment.timeline({"HOROVOD_TIMELINE": "t"}) == "t"
    with pytest.warns(UserWarning, match=r"without effect here: HOROVOD_FUSION_THRESHOLD\. docs"):
        _environment.warn_about_others(found)
    given = {"HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_LOG_LEVEL": "fatal", "SMDDP_LOG_LEVEL": "info"}
    _environment.apply_settings(given)
    assert (given["SMDDP_STALL_WARNING"], given["SMDDP_LOG_LEVEL"]) == ("0", "info")


def test_adasum_is_refused():
    with pytest.raises(NotImplementedError, match=r"hvd.Adasum .* tf_smddp.keras.callbacks.Learning"):
        hvd.allreduce(tf.ones([2]), op=hvd.Adasum)
    with pytest.raises(ValueError, match="BestModelCheckpoint needs filepath="):
        hvd_keras.callbacks.BestModelCheckpoint()


def test_ranks_outside_of_the_set_keep_their_gradients(rank, size):
    first = hvd.add_process_set([0])
    weight = tf.Variable([1.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((rank + 1.0) * weight)
    tape = hvd.DistributedGradientTape(tape, process_set=first)
    np.testing.assert_allclose(tape.gradient(loss, weight), [rank + 1.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), process_set=first)
    optimizer.apply_gradients([(tf.constant([rank + 1.0]), weight)])
    np.testing.assert_allclose(weight.numpy(), [-float(rank)])
    assert hvd.remove_process_set(first)


def test_local_variables_of_an_optimizer(rank, size):
    layers = [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(3)]
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((1,)), *layers])
    optimizer = hvd_keras.PartialDistributedOptimizer(tf.keras.optimizers.SGD(1.0), local_layers=layers[0])
    optimizer.register_local_var(layers[1].trainable_weights[0])
    gradients = [tf.constant([[rank + 1.0]])] * 3
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    local, also_local, shared = (float(weight[0, 0]) for weight in model.get_weights())
    np.testing.assert_allclose([local, also_local], 1 - (rank + 1) / size, atol=1e-6)
    np.testing.assert_allclose(shared, 1 - total(size) / size, rtol=1e-6)


@pytest.mark.parametrize("local_variables", [lambda layer: layer.weights, lambda layer: layer.weights[0]])
def test_callbacks_with_local_variables(rank, size, tmp_path, local_variables):
    of_rank = tf.keras.initializers.Constant(float(rank))
    own, shared = (tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=of_rank) for _ in range(2))
    model = tf.keras.Sequential([tf.keras.layers.InputLayer((1,)), own, shared])
    own.trainable = shared.trainable = False
    model.compile("sgd", "mse")
    weights_only = {"save_weights_only": True, "filepath": str(tmp_path / "best.weights.h5")}
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(size - 1, "", local_variables(own)),
        hvd_keras.callbacks.MetricAverageCallback("/cpu:0"),
        hvd_keras.callbacks.BestModelCheckpoint("loss", filepath=str(tmp_path / "best.keras")),
        hvd_keras.callbacks.BestModelCheckpoint("loss", **weights_only),
    ]
    model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, callbacks=callbacks)
    assert [float(weight[0, 0]) for weight in model.get_weights()] == [rank, size - 1]
    files = [tmp_path / "best.keras", tmp_path / "best.weights.h5"]
    assert [file.exists() for file in files] == [rank == 0] * 2
    if rank == 0:
        with pytest.raises((ValueError, OSError)):  # it has no model
            tf.keras.models.load_model(files[1])
        model.load_weights(files[1])


def test_an_average_in_a_metric(rank, size):
    """As in scripts whose metrics average by themselves."""

    def averaged(labels, outputs):
        return hvd_keras.allreduce(tf.reduce_mean(labels))

    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse", metrics=[averaged])
    labels = np.full([4, 1], rank + 1.0, np.float32)
    found = model.fit(np.ones([4, 1], np.float32), labels, batch_size=2, verbose=0).history["averaged"]
    assert found == pytest.approx([(size + 1) / 2])


@pytest.mark.parametrize("wrapped", ["tape", "optimizer"])
@pytest.mark.parametrize("broadcasts", [True, False])
def test_weights_that_are_broadcast_after_the_first_batch(rank, size, wrapped, broadcasts, monkeypatch):
    """As Horovod's own loops do. There is a warning that ranks had other weights only if they do not."""
    monkeypatch.setattr(gradient_use, "_seen", gradient_use._Seen())
    weight = tf.Variable([float(rank)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight**2)
        if wrapped == "tape":
            hvd.DistributedGradientTape(tape).gradient(loss, [weight])
        else:
            optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.0))
            optimizer.minimize(lambda: tf.reduce_sum(weight**2), var_list=[weight])
        if broadcasts:
            hvd.broadcast_variables([weight], root_rank=0)
        differ = [each for each in caught if "the ranks' weights differ" in str(each.message)]
        assert not differ
        gradient_use._at_shutdown()
        differ = [each for each in caught if "the ranks' weights differ" in str(each.message)]
        assert len(differ) == (rank == 0 and size > 1 and not broadcasts)
