"""shard: each rank's part of a dataset, of records or of files."""

from __future__ import annotations

import operator
from typing import Any, Optional

import tensorflow as tf

from tf_smddp import _runtime


def shard(
    dataset: tf.data.Dataset, batch_size: Optional[int] = None, *, equal: bool = True
) -> tf.data.Dataset:
    """Returns this rank's part of a dataset, with as many records as each other rank's.

        data = sdp.shard(records).shuffle(10_000).batch(32, drop_remainder=True)
        data = sdp.shard(records, 32)  # likewise, without the shuffling

    Record i goes to rank i % size(). At the end, up to size() - 1 records are left out, so that no rank has
    one more than another, and takes a step that the others do not. Shuffle afterwards, or before with the
    same seed on all ranks and `reshuffle_each_iteration=False`: with other seeds the parts would overlap. Not
    a collective.

    With `equal=False` nothing is left out, and the ranks' parts differ in length: put `join` around the loop.
    So ranks share out files, whose lengths differ anyway:

        names = sdp.shard(tf.data.Dataset.list_files(pattern, shuffle=False), equal=False)
        data = tf.data.TFRecordDataset(names).shuffle(10_000).batch(32)

    Args:
        dataset: of records that are not batched, or of the names of files; the same on all ranks, in the same
            order.
        batch_size: the records of one rank's batch: the part is batched, and what would be an incomplete last
            batch is left out, if `equal`. None: it is not batched; use `drop_remainder=True` where you batch
            it.
        equal: whether all ranks have the same number of records.

    Returns:
        The part.

    Raises:
        RuntimeError: before `init`.
        TypeError: `dataset` is no tf.data.Dataset, or `batch_size` no integer.
        ValueError: `batch_size` is less than 1; or the dataset is known to have too few records for one batch
            on each rank, or for one record if not `equal`.
    """
    _runtime.require_initialized("shard")
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"shard() takes a tf.data.Dataset, but got {dataset!r}.")
    size, rank = _runtime.size(), _runtime.rank()
    batch = 1 if batch_size is None else operator.index(batch_size)
    if batch < 1:
        raise ValueError(f"shard() needs batch_size >= 1, but got {batch_size}.")
    count = _count(dataset)
    if 0 <= count < size:
        raise ValueError(
            f"shard() needs at least one element for each of {size} ranks, but the dataset has {count}. "
            "Is it batched already? Shard it before. Is it of the names of files? Shard the records in them, "
            "or write more files."
        )
    if equal and 0 <= count < size * batch:
        raise ValueError(
            f"shard() needs {size * batch} records for one batch of {batch} on each of {size} ranks, but the "
            f"dataset has {count}. Is it batched already? Shard it before."
        )
    part = part_of(dataset, size, rank) if equal else dataset.shard(size, rank)
    return part if batch_size is None else part.batch(batch, drop_remainder=equal)


def _count(dataset: tf.data.Dataset) -> int:
    """Returns the number of records; in a graph, as an estimator's input_fn has it, it is not known yet."""
    return int(dataset.cardinality()) if tf.executing_eagerly() else int(tf.data.UNKNOWN_CARDINALITY)


def part_of(dataset: tf.data.Dataset, size: int, rank: int) -> tf.data.Dataset:
    """Returns part number `rank` of `size` equal parts."""
    count = _count(dataset)
    if count == tf.data.INFINITE_CARDINALITY:
        return dataset.shard(size, rank)
    if count >= 0:
        return dataset.take(count // size * size).shard(size, rank)

    # Only a group that is complete gives each rank a record.
    def own(*group: Any) -> tf.data.Dataset:
        return tf.data.Dataset.zip(group[0] if len(group) == 1 else group).skip(rank).take(1)

    return dataset.window(size, drop_remainder=True).flat_map(own)
