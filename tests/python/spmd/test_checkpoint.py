"""sdp.Checkpoint: what is saved is restored on all ranks, and what is not whole is never read."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from values import assert_equal

import tf_smddp as sdp


@pytest.fixture
def folder(rank, tmp_path):
    """Rank 0's folder, on all ranks."""
    return pathlib.Path(sdp.broadcast_object(str(tmp_path / "saved")))


def shared(value):
    return {"weight": tf.Variable([value, 2.0 * value]), "count": tf.Variable(int(value))}


def test_nothing_was_saved(folder):
    assert sdp.Checkpoint(folder, weight=tf.Variable(1.0)).restore() is None


def test_what_is_shared_and_what_each_rank_has(rank, folder):
    own = {"numbers": tf.data.Dataset.range(rank, 100).as_numpy_iterator()._iterator}
    before = sdp.Checkpoint(folder, per_rank=own, **shared(3.0))
    for step in range(3):
        next(own["numbers"])
        before.save(step)

    other = shared(0.0)
    again = {"numbers": tf.data.Dataset.range(rank, 100).as_numpy_iterator()._iterator}
    assert sdp.Checkpoint(folder, per_rank=again, **other).restore() == 2
    assert_equal(other["weight"].numpy(), np.array([3.0, 6.0], np.float32), "the weight")
    assert int(other["count"]) == 3
    assert int(next(again["numbers"])) == rank + 3, "it goes on where it was"


def test_old_checkpoints_are_deleted(rank, folder):
    checkpoint = sdp.Checkpoint(folder, max_to_keep=2, per_rank={"own": tf.Variable(rank)}, **shared(1.0))
    for step in (10, 20, 30):
        checkpoint.save(step)
    sdp.barrier()
    assert sorted(path.name for path in folder.glob("*.index")) == ["ckpt-20.index", "ckpt-30.index"]
    assert sorted(path.name for path in (folder / "ranks").iterdir()) == ["20", "30"]
    sdp.barrier()


def test_ranks_that_do_not_see_the_files_get_them(rank, tmp_path):
    """As on hosts without a common file system; also for variables that are created after it."""
    own_folder = tmp_path / f"rank-{rank}"
    sdp.Checkpoint(own_folder, **shared(5.0)).save(7)
    assert own_folder.exists() == (rank == 0)
    later = tf.Module()
    assert sdp.Checkpoint(own_folder, model=later, count=tf.Variable(0)).restore() == 7
    count = tf.Variable(0)
    checkpoint = sdp.Checkpoint(own_folder, count=count)
    assert checkpoint.restore() == 7
    checkpoint._shared.weight = tf.Variable([0.0, 0.0])
    assert int(count) == 5
    assert_equal(checkpoint._shared.weight.numpy(), np.array([5.0, 10.0], np.float32), "created later")


def test_a_checkpoint_that_was_not_written_to_its_end_is_not_read(rank, folder):
    checkpoint = sdp.Checkpoint(folder, **shared(1.0))
    checkpoint.save(1)
    if rank == 0:  # killed while it wrote the next one: before the index, and before it became the latest
        data = (folder / "ckpt-1.data-00000-of-00001").read_bytes()
        (folder / "ckpt-2.data-00000-of-00001").write_bytes(data[: len(data) // 2])
        (folder / "ckpt-3.data-00000-of-00001.tempstate123").write_bytes(data[:5])
    sdp.barrier()
    found = shared(0.0)
    again = sdp.Checkpoint(folder, **found)
    assert again.restore() == 1
    assert int(found["count"]) == 1
    again.save(2)
    assert sdp.Checkpoint(folder, **shared(0.0)).restore() == 2
    assert not list(folder.glob("*.tempstate*"))
    sdp.barrier()


@pytest.mark.parametrize("failing", ["shared", "own"])
def test_a_failure_of_one_rank_is_raised_on_all(rank, size, folder, failing):
    checkpoint = sdp.Checkpoint(folder, per_rank={"own": tf.Variable(rank)}, **shared(4.0))
    checkpoint.save(1)
    if failing == "own":
        blocked, who = folder / "ranks" / "2" / f"rank-{size - 1}-of-{size}.index", size - 1
    else:
        blocked, who = folder / "ckpt-2.index", 0
    if rank == 0:
        blocked.mkdir(parents=True)
        (blocked / "file").touch()  # so that nothing can be renamed to it
    sdp.barrier()
    with pytest.raises(RuntimeError, match=f"rank {who} could not write .*: "):
        checkpoint.save(2)
    assert sdp.Checkpoint(folder, per_rank={"own": tf.Variable(0)}, **shared(0.0)).restore() == 1


def test_wrong_arguments(rank, size, folder):
    checkpoint = sdp.Checkpoint(folder, **shared(1.0))
    checkpoint.save(5)
    with pytest.raises(ValueError, match=r"save\(5\): there is a checkpoint of step 5 in .*Call restore\(\)"):
        checkpoint.save(5)
    with pytest.raises(TypeError):
        checkpoint.save(6.5)
    if size > 1:
        with pytest.raises(RuntimeError, match="the ranks pass different steps: rank 0 has 6, rank 1 has 7"):
            checkpoint.save(6 + rank)
    with pytest.raises(ValueError, match="needs something to save"):
        sdp.Checkpoint(folder)
    with pytest.raises(
        ValueError, match=r"no file system for 'none://bucket/it'.*mount the store as a folder"
    ):
        sdp.Checkpoint("none://bucket/it", count=tf.Variable(1))
    with pytest.raises(ValueError, match="max_to_keep >= 1, but got 0"):
        sdp.Checkpoint(folder, max_to_keep=0, count=tf.Variable(1))
    with pytest.raises(RuntimeError, match=r"Checkpoint.save\(\) was called while a function is traced"):
        tf.function(lambda: checkpoint.save(9))()
