"""sdp.shard: equal parts; each record is in one of them, and none is lost but at the end."""

import numpy as np
import pytest
import tensorflow as tf

import tf_smddp as sdp
from tf_smddp._shard import part_of


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
    with pytest.raises(TypeError, match=r"takes a tf\.data\.Dataset, but got \[1\]"):
        sdp.shard([1])


@pytest.mark.parametrize("known", [True, False])
def test_in_a_v1_graph(rank, size, known):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        data = sdp.shard(records(5 * size + 1, known))
        number = tf.compat.v1.data.make_one_shot_iterator(data).get_next()["number"]
        assert [session.run(number) for _ in range(5)] == list(range(rank, 5 * size, size))
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(number)
