"""sdp.shard: equal parts; each record is in one of them, and none is lost but at the end."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp
from tf_smddp._training.shard import part_of


def records(count, known):
    """A dataset of `count` records: numbers, and tensors of different lengths."""
    data = tf.data.Dataset.range(count)
    data = data if known else data.filter(lambda x: x >= 0)
    return data.map(lambda x: {"number": x, "ones": tf.ones([x % 3])})


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_the_parts(parts, known):
    for count in (0, 1, 4, 5, 6, 17, 30):
        data = records(count, known)
        assert int(data.cardinality()) == (count if known else tf.data.UNKNOWN_CARDINALITY)
        found = [
            [int(each["number"]) for each in part_of(data, parts, rank).as_numpy_iterator()]
            for rank in range(parts)
        ]
        assert found == [list(range(rank, count // parts * parts, parts)) for rank in range(parts)]


@pytest.mark.parametrize("known", [True, False])
def test_all_kinds_of_records(known):
    pairs = tf.data.Dataset.range(7).map(lambda x: (x, (x + 1, tf.ones([x]))))
    pairs = pairs if known else pairs.filter(lambda x, _: x >= 0)
    assert [int(x) for x, (_, ones) in part_of(pairs, 2, 1) if len(ones) == x] == [1, 3, 5]
    assert next(iter(part_of(tf.data.Dataset.range(3).repeat(), 2, 1))) == 1


@pytest.mark.parametrize("known", [True, False])
def test_equal_steps(rank, size, known):
    count = 4 * size * 3 + size + 1
    batches = list(sdp.shard(records(count, known).map(lambda x: x["number"]), 4))
    assert [batch.shape for batch in batches] == [(4,)] * 3
    assert np.concatenate(batches).tolist() == list(range(rank, count, size))[:12]
    steps = sdp.allgather_object(len(list(sdp.shard(records(count, known)))))
    assert len(set(steps)) == 1


@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_left_out(rank, size, known):
    count = 4 * size * 3 + size + 1
    numbers = records(count, known).map(lambda x: x["number"])
    own = list(range(rank, count, size))
    assert [int(number) for number in sdp.shard(numbers, equal=False)] == own
    batches = [batch.numpy().tolist() for batch in sdp.shard(numbers, 4, equal=False)]
    assert batches == [own[start : start + 4] for start in range(0, len(own), 4)]
    assert sum(sdp.allgather_object(len(own))) == count


@pytest.mark.min_ranks(2)
def test_fewer_files_than_ranks(size, tmp_path):
    for number in range(size - 1):
        (tmp_path / f"part-{number}").touch()
    names = tf.data.Dataset.list_files(str(tmp_path / "part-*"), shuffle=False)
    text = f"one element for each of {size} ranks, but the dataset has {size - 1}.*Shard the records in them"
    for equal in (True, False):
        with pytest.raises(ValueError, match=text):
            sdp.shard(names, equal=equal)


def test_wrong_arguments(size):
    data = tf.data.Dataset.range(4 * size - 1)
    with pytest.raises(
        ValueError, match=f"needs {4 * size} records for one batch of 4 on each of {size} ranks"
    ):
        sdp.shard(data, 4)
    with pytest.raises(ValueError, match="batch_size >= 1, but got 0"):
        sdp.shard(data, 0)
    with pytest.raises(TypeError):
        sdp.shard(data, 2.5)
    for wrong, kind in ((3, "int"), ([1], "int"), ((np.zeros(9), None), "NoneType"), (np.float32(1), "a sc")):
        with pytest.raises(TypeError, match=rf"takes a tf\.data\.Dataset, or arrays .*, but got {kind}"):
            sdp.shard(wrong)
    arrays = np.zeros([size, 10_000]), np.zeros([size + 1])
    with pytest.raises(ValueError, match=rf"but they have \[{size}, {size + 1}\]") as error:
        sdp.shard(arrays)
    assert len(str(error.value)) < 300
    with pytest.raises(TypeError, match="no batch_size for arrays"):
        sdp.shard(arrays, 4)
    with pytest.raises(ValueError, match=rf"one record for each of {size} ranks, but the arrays have 0"):
        sdp.shard(np.zeros([0, 3]))


def test_arrays(rank, size):
    count = 5 * size + size - 1
    x = np.arange(3 * count).reshape(count, 3)
    own = np.arange(rank, 5 * size, size)
    found, labels = sdp.shard((x, tf.constant(x[:, 0])))
    assert found.tolist() == x[own].tolist()
    assert labels.numpy().tolist() == x[own, 0].tolist()
    assert sdp.shard(x).tolist() == x[own].tolist()
    nested = sdp.shard({"a": [x], "b": tf.ragged.constant([[1] * (i % 3) for i in range(count)])})
    assert nested["a"][0].tolist() == x[own].tolist()
    assert nested["b"].to_list() == [[1] * (i % 3) for i in own]
    pair = sdp.shard(collections.namedtuple("Pair", "inputs labels")(x, x[:, 0]))
    assert pair.inputs.tolist() == x[own].tolist() and pair.labels.tolist() == x[own, 0].tolist()
    everything = sdp.shard(x, equal=False)
    assert everything.tolist() == x[rank::size].tolist()


def test_arrays_for_fit(rank, size):
    """With validation_split and class_weight, as in a script of one process."""
    x = np.arange(16.0 * size + size - 1, dtype=np.float32)[:, None]
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(1e-4)), "mse")
    own = sdp.shard((x, (x[:, 0] > 3).astype(np.float32)))
    arguments = {"validation_split": 0.25, "class_weight": {0: 1.0, 1: 2.0}, "verbose": 0}
    model.fit(*own, batch_size=5, epochs=2, shuffle=False, **arguments)
    weights = sdp.allgather_object(model.get_weights()[0].tolist())
    assert weights == [weights[0]] * size and weights[0] != [[0.0]]


@pytest.mark.parametrize("known", [True, False])
def test_in_a_v1_graph(rank, size, known):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        data = sdp.shard(records(6 * size - 1, known))
        number = tf.compat.v1.data.make_one_shot_iterator(data).get_next()["number"]
        assert [session.run(number) for _ in range(5)] == list(range(rank, 5 * size, size))
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(number)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("equal", [True, False])
def test_an_epoch_goes_on_with_another_number_of_ranks(rank, size, known, equal):
    """The first steps were those of `before` ranks. All that follows is in the parts once."""
    for before, steps in ((1, 1), (size + 1, 2), (2 * size, 3)):
        skip, count = before * steps * 4, before * steps * 4 + 3 * size + 1
        numbers = records(count, known).map(lambda x: x["number"])
        own = [int(number) for number in sdp.shard(numbers, equal=equal, skip=skip)]
        end = count - 1 if equal else count
        assert own == list(range(skip + rank, end, size))
        assert sdp.shard(np.arange(count), equal=equal, skip=skip).tolist() == own
        batches = [batch.numpy().tolist() for batch in sdp.shard(numbers, 2, equal=equal, skip=skip)]
        assert batches == [own[start : start + 2] for start in range(0, 2 if equal else len(own), 2)]


def test_too_little_is_left(size):
    data, arrays = tf.data.Dataset.range(8 * size), np.arange(8 * size)
    assert list(sdp.shard(data, 4, skip=5 * size)) == []
    assert list(sdp.shard(data, skip=8 * size)) == []
    assert sdp.shard(arrays, skip=8 * size).tolist() == []
    for each in (data, arrays):
        with pytest.raises(
            ValueError, match=rf"cannot skip {8 * size + 1} records, since there are {8 * size}"
        ):
            sdp.shard(each, skip=8 * size + 1)
        with pytest.raises(ValueError, match="needs skip >= 0, but got -1"):
            sdp.shard(each, skip=-1)
        with pytest.raises(TypeError):
            sdp.shard(each, skip=1.5)
