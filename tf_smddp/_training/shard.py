"""shard: each rank's part of a dataset, of records or of files, or of arrays."""

from __future__ import annotations

import operator
from typing import Any, Optional

import tensorflow as tf

from smddp import runtime


def shard(dataset: Any, batch_size: Optional[int] = None, *, equal: bool = True, skip: int = 0) -> Any:
    """Returns this rank's part of a dataset or of arrays, with as many records as each other rank's.

        data = sdp.shard(records).shuffle(10_000).batch(32, drop_remainder=True)
        data = sdp.shard(records, 32)  # likewise, without the shuffling
        x, y = sdp.shard((x, y))  # arrays, for fit(x, y, batch_size=32, validation_split=0.1)

    Record i goes to rank i % size(). At the end, up to size() - 1 records are left out, so that no rank has
    one more than another, and takes a step that the others do not. Shuffle afterwards, or before with the
    same seed on all ranks and `reshuffle_each_iteration=False`: with other seeds the parts would overlap. Not
    a collective.

    With `equal=False` nothing is left out, and the ranks' parts differ in length: put `join` around the loop.
    So ranks share out files, whose lengths differ anyway:

        names = sdp.shard(tf.data.Dataset.list_files(pattern, shuffle=False), equal=False)
        data = tf.data.TFRecordDataset(names).shuffle(10_000).batch(32)

    With `skip`, an epoch goes on where a checkpoint has left it, also with another number of ranks: n steps
    of all ranks have taken the first n * size() * batch_size records, if nothing is shuffled after `shard`.
    So count them, and save the count:

        data = sdp.shard(records, 32, skip=int(seen))  # seen: a tf.Variable of the checkpoint, in int64
        for batch in data:
            ...
            seen.assign_add(32 * sdp.size())

    Args:
        dataset: of records that are not batched, or of the names of files; the same on all ranks, in the same
            order. Or arrays of records: what has a `shape` and takes slices, such as NumPy's arrays, tensors
            and data frames, also in tuples, lists and dicts; all with the same first dimension.
        batch_size: the records of one rank's batch: the part is batched, and what would be an incomplete last
            batch is left out, if `equal`. None: it is not batched; use `drop_remainder=True` where you batch
            it. Not for arrays, which `fit` batches.
        equal: whether all ranks have the same number of records.
        skip: how many records at the beginning are left out, since the ranks have had them. What is left may
            then be too little for a batch, or nothing. It is left out of each round of a `repeat` that
            follows, so call `shard` again for the next epoch.

    Returns:
        The part; of arrays, a structure like the one that was given.

    Raises:
        RuntimeError: before `init`.
        TypeError: `dataset` is neither a tf.data.Dataset nor arrays, or `batch_size` or `skip` no integer, or
            `batch_size` is given with arrays.
        ValueError: `batch_size` is less than 1; or the arrays differ in their first dimension; or `skip` is
            negative, or known to be more than there is; or, without `skip`, the dataset is known to have too
            few records for one batch on each rank, or for one record if not `equal`.
    """
    runtime.require_initialized("shard")
    size, rank = runtime.size(), runtime.rank()
    skip = operator.index(skip)
    if skip < 0:
        raise ValueError(f"shard() needs skip >= 0, but got {skip}.")
    if not isinstance(dataset, tf.data.Dataset):
        if batch_size is not None:
            raise TypeError(
                "shard() has no batch_size for arrays: fit(x, y, batch_size=…) makes the batches."
            )
        return _part_of_arrays(dataset, size, rank, equal, skip)
    batch = 1 if batch_size is None else operator.index(batch_size)
    if batch < 1:
        raise ValueError(f"shard() needs batch_size >= 1, but got {batch_size}.")
    count = _count(dataset)
    if skip:
        _check_skip(skip, count)
        dataset = dataset.skip(skip)
    elif 0 <= count < size:
        raise ValueError(
            f"shard() needs at least one element for each of {size} ranks, but the dataset has {count}. "
            "Is it batched already? Shard it before. Is it of the names of files? Shard the records in them, "
            "or write more files."
        )
    elif equal and 0 <= count < size * batch:
        raise ValueError(
            f"shard() needs {size * batch} records for one batch of {batch} on each of {size} ranks, but the "
            f"dataset has {count}. Is it batched already? Shard it before."
        )
    part = part_of(dataset, size, rank) if equal else dataset.shard(size, rank)
    return part if batch_size is None else part.batch(batch, drop_remainder=equal)


def _check_skip(skip: int, count: int) -> None:
    if 0 <= count < skip:
        raise ValueError(
            f"shard() cannot skip {skip} records, since there are {count}. Is the number from a checkpoint "
            "of other data, or was it not set to 0 for this epoch?"
        )


def _part_of_arrays(arrays: Any, size: int, rank: int, equal: bool, skip: int) -> Any:
    lengths = sorted({_length(each) for each in tf.nest.flatten(arrays)})
    if len(lengths) != 1:
        raise ValueError(
            f"shard() needs arrays with the same number of records, but they have {lengths}. The first "
            "dimension is that of the records."
        )
    count = lengths[0]
    if skip:
        _check_skip(skip, count)
    elif count < size:
        raise ValueError(
            f"shard() needs at least one record for each of {size} ranks, but the arrays have {count}."
        )
    end = count - (count - skip) % size if equal else count
    return tf.nest.map_structure(lambda each: each[skip + rank : end : size], arrays)


def _length(array: Any) -> int:
    """Returns the number of an array's records."""
    shape = getattr(array, "shape", ())
    if not shape or shape[0] is None:
        raise TypeError(
            "shard() takes a tf.data.Dataset, or arrays of records, also in tuples, lists and dicts, but got "
            f"{'a scalar ' if hasattr(array, 'shape') else ''}{type(array).__name__}."
        )
    return int(shape[0])


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
