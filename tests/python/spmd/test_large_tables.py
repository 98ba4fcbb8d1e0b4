"""Gradients of large tables in jobs of several hosts: their rows travel by one of two ways."""

import numpy as np
import pytest
import tensorflow as tf
from modes import DYNAMIC_MODES, compiled, eager, in_a_v1_session, modes
from optimizer_families import ALL, each
from values import assert_equal

import tf_smddp as sdp
import tf_smddp.horovod.tensorflow as hvd
from tf_smddp._training import sparse_sums
from tf_smddp._training.reduce_gradients import reduce_gradients

SUM, AVERAGE = sdp.ReduceOp.SUM, sdp.ReduceOp.AVERAGE
WIDTH = 64
LENGTH = sparse_sums.LEAST_BYTES // (4 * WIDTH)  # of a table of float32
# The rows of all ranks together, as a part of the table's.
FEW, MANY = 0.1, 0.9
BOTH_WAYS = pytest.mark.parametrize("part", [FEW, MANY], ids=["gathered", "dense"])


@pytest.fixture
def hosts(monkeypatch):
    """As if the ranks were on several hosts."""
    monkeypatch.setattr(sparse_sums, "on_several_hosts", lambda: True)


def gathered():
    """How many tensors this rank has gathered so far."""
    return sdp.stats()["collectives"]["allgather"]["calls"]


def words_of(rank, size, part, seed=0):
    """Words with duplicates; others on each rank, and another number of them: none on rank 0 if FEW."""
    count = 0 if part == FEW and rank == 0 else int(part * LENGTH / size) + rank
    return np.random.default_rng([rank, seed]).integers(0, LENGTH // 3, count)


def counts_of(*words):
    """How often all of these words occur, by NumPy."""
    return np.bincount(np.concatenate(words), minlength=LENGTH)


def check_table(gradient, counts):
    """Checks a dense gradient in which all of a row is equal, and that it is the same on all ranks."""
    assert isinstance(gradient, tf.Tensor) and gradient.shape == (len(counts), WIDTH)
    found = tf.cast(gradient, tf.float64).numpy()
    np.testing.assert_allclose(found, np.repeat(counts[:, None], WIDTH, axis=1), rtol=1e-6)
    assert_equal(sdp.broadcast(gradient, 0), gradient.numpy(), "equal to the bit on all ranks")


class Lookup:
    """A step that looks words up in a large table, and has a dense gradient beside it."""

    def __init__(self, mode=eager, dtype=tf.float32, length=LENGTH, **options):
        self.table = tf.Variable(tf.zeros([length, WIDTH], dtype))
        self.bias = tf.Variable(tf.zeros([], dtype))
        self.options = options
        self.gradients = mode(self._gradients)

    def _gradients(self, words):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(self.table, words)) + self.bias
        return sdp.DistributedGradientTape(tape, **self.options).gradient(loss, [self.table, self.bias])


@pytest.mark.min_ranks(2)
@DYNAMIC_MODES
@pytest.mark.parametrize("op", [SUM, AVERAGE])
def test_large_tables_go_by_the_number_of_rows(rank, size, hosts, mode, op):
    """In one program."""
    lookup = Lookup(mode, op=op)
    for step, part in enumerate((FEW, MANY, MANY, FEW)):
        before, words = gathered(), [words_of(r, size, part, step) for r in range(size)]
        gradient, bias = lookup.gradients(tf.constant(words[rank]))
        assert gathered() - before == (2 if part == FEW else 0)
        check_table(gradient, counts_of(*words) / (size if op is AVERAGE else 1))
        assert float(bias) == (1.0 if op is AVERAGE else size)


@pytest.mark.min_ranks(2)
@modes(eager, tf.function)
def test_each_table_goes_its_own_way(rank, size, hosts, mode):
    tables = [tf.Variable(tf.zeros([LENGTH, WIDTH])) for _ in range(3)]
    unused = tf.Variable(0.0)
    words = [[words_of(r, size, part, i) for r in range(size)] for i, part in enumerate((FEW, MANY, FEW))]

    @mode
    def step(*words):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.gather(*pair)) for pair in zip(tables, words)])
        return sdp.DistributedGradientTape(tape, op=SUM).gradient(loss, [*tables[:2], unused, tables[2]])

    before = gathered()
    found = step(*(tf.constant(of_ranks[rank]) for of_ranks in words))
    assert gathered() - before == 4
    assert found.pop(2) is None
    for gradient, of_ranks in zip(found, words):
        check_table(gradient, counts_of(*of_ranks))


@pytest.mark.min_ranks(2)
@BOTH_WAYS
@pytest.mark.parametrize(
    "dtype, large",
    [(tf.float16, 2.0**11), (tf.bfloat16, 2.0**8), (tf.float32, 2.0**24), (tf.float64, 2.0**53)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_types_of_large_tables(rank, size, hosts, part, dtype, large):
    """In these types large + 1 is large; 16-bit floats are added in float32, as in a dense reduction."""
    ones = {0: [large], 1: [1.0, 1.0]}.get(rank, [])
    zeros = [0.0] * int(part * 2 * LENGTH / size)
    values = tf.repeat(tf.constant([ones + zeros], dtype), WIDTH, axis=0)
    words = tf.constant([5] * len(ones) + [0] * len(zeros), tf.int32)
    slices = tf.IndexedSlices(tf.transpose(values), words, tf.constant([2 * LENGTH, WIDTH]))
    before = gathered()
    (gradient,) = reduce_gradients([slices], [""], sdp.Compression.none, SUM, True, "Test")
    assert (gathered() > before) == (part == FEW)
    assert gradient.dtype == dtype
    loses_ones = part == FEW and dtype.size >= 4
    check_table(gradient, np.bincount([5], [large + 2 * (not loses_ones)], 2 * LENGTH))


@pytest.mark.min_ranks(2)
@BOTH_WAYS
@pytest.mark.parametrize("compression", [sdp.Compression.fp16, sdp.Compression.bf16])
def test_large_tables_with_compression(rank, size, hosts, part, compression):
    before, words = gathered(), [words_of(r, size, part) for r in range(size)]
    gradient, _ = Lookup(compression=compression, op=SUM).gradients(tf.constant(words[rank]))
    assert (gathered() > before) == (part == FEW)
    check_table(gradient, counts_of(*words))


@pytest.mark.min_ranks(2)
@BOTH_WAYS
@modes(eager, tf.function)
def test_large_tables_in_process_sets(rank, size, hosts, mode, part):
    """Its ranks count, in sums of rows and in averages."""
    members = sdp.add_process_set([0, size - 1])
    try:
        if members.included():
            before, words = gathered(), [words_of(r, size, part) for r in members.ranks]
            lookup = Lookup(mode, process_set=members)
            gradient, _ = lookup.gradients(tf.constant(words[members.rank()]))
            assert (gathered() > before) == (part == FEW)
            np.testing.assert_allclose(gradient[:, 0], counts_of(*words) / 2)
    finally:
        sdp.remove_process_set(members)


@pytest.mark.min_ranks(2)
@BOTH_WAYS
@modes(eager, tf.function)
def test_large_tables_while_ranks_have_joined(rank, size, hosts, mode, part):
    """Rank r has r batches: an average is that of the ranks that have one."""
    lookup = Lookup(mode)
    with sdp.join(lookup.table, lookup.bias):
        for step in range(rank):
            words = [words_of(r, size, part, step) for r in range(step + 1, size)]
            gradient, bias = lookup.gradients(tf.constant(words[rank - step - 1]))
            np.testing.assert_allclose(gradient[:, 0], counts_of(*words) / len(words), rtol=1e-6)
            assert float(bias) == 1.0


class Negated(sdp.Compression.none):
    @staticmethod
    def compress(tensor):
        return -tensor, None


@pytest.mark.min_ranks(2)
@pytest.mark.parametrize(
    "mode, length, options",
    [
        (eager, LENGTH - 1, {}),
        (eager, LENGTH, {"op": sdp.ReduceOp.MAX}),
        (eager, LENGTH, {"compression": Negated}),
        (compiled, LENGTH, {}),
    ],
    ids=["small", "maximum", "compressor", "jit"],
)
def test_tables_that_always_become_dense(rank, hosts, mode, length, options):
    before = sdp.stats()["collectives"]
    gradient, _ = Lookup(mode, length=length, **options).gradients(tf.constant([rank, 7, 7]))
    after = sdp.stats()["collectives"]
    assert gradient.numpy()[7, 0] == (-2.0 if "compression" in options else 2.0)
    assert after["allgather"]["calls"] == before["allgather"]["calls"]


@pytest.mark.min_ranks(2)
def test_large_tables_on_one_host(rank, size, monkeypatch):
    monkeypatch.setattr(sparse_sums, "on_several_hosts", lambda: False)
    before = gathered()
    gradient, _ = Lookup(op=SUM).gradients(tf.constant([7, 7]))
    assert gathered() == before
    check_table(gradient, counts_of([7, 7] * size))


@pytest.mark.min_ranks(2)
def test_large_tables_in_v1_sessions(rank, size, hosts):
    def reduce(values):
        slices = tf.IndexedSlices(values, tf.constant([rank]), tf.constant([LENGTH, WIDTH]))
        return reduce_gradients([slices], [""], sdp.Compression.none, SUM, True, "Test")[0][: size + 1, 0]

    before = gathered()
    assert in_a_v1_session(reduce)(tf.ones([1, WIDTH])).tolist() == [1.0] * size + [0.0]
    assert gathered() == before


@pytest.mark.min_ranks(2)
@each(ALL)
@BOTH_WAYS
def test_fit_with_a_large_table(rank, size, monkeypatch, family, part):
    """The same training as with dense tensors on their way: momentum moves all rows that were ever used."""
    layers, steps, length = family.keras.layers, 3, int(part * LENGTH / size)
    words = np.random.default_rng(rank).integers(0, LENGTH, [steps, length])

    def train(several_hosts):
        monkeypatch.setattr(sparse_sums, "on_several_hosts", lambda: several_hosts)
        embedding = layers.Embedding(LENGTH, WIDTH, embeddings_initializer="ones")
        inputs = family.keras.Input(shape=(length,), dtype="int32")
        model = family.keras.Model(inputs, layers.GlobalAveragePooling1D()(embedding(inputs)))
        optimizer = family.optimizers.SGD(100.0, momentum=0.9)
        model.compile(sdp.DistributedOptimizer(optimizer), "mse", jit_compile=False)
        before = gathered()
        model.fit(words, np.zeros([steps, WIDTH]), 1, 1, verbose=0, shuffle=False)
        return model.get_weights()[0], gathered() - before

    found, calls = train(True)
    assert calls == (2 * steps if part == FEW else 0)
    wanted, calls = train(False)
    assert calls == 0 and not np.allclose(wanted, 1.0, rtol=1e-5)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert_equal(sdp.broadcast(found, 0), found, "equal to the bit on all ranks")


def test_the_horovod_layer_gathers_by_default(hosts, size):
    lookup = Lookup()
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(tf.gather(lookup.table, [3]))
    gradient = hvd.DistributedGradientTape(tape).gradient(loss, lookup.table)
    assert isinstance(gradient, tf.IndexedSlices) and gradient.indices.numpy().tolist() == [3] * size
    gradient = hvd.DistributedGradientTape(tape, sparse_as_dense=True).gradient(loss, lookup.table)
    check_table(gradient, counts_of([3]))
