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


def test_a_job_that_starts_again_and_finds_nothing_says_so(rank, folder, monkeypatch, recwarn):
    monkeypatch.setenv("SMDDP_RESTART_COUNT", "1")
    assert sdp.Checkpoint(folder, weight=tf.Variable(1.0)).restore() is None
    texts = [str(each.message) for each in recwarn if "finds no checkpoint in" in str(each.message)]
    assert len(texts) == (1 if rank == 0 else 0)


def test_parts_of_another_number_of_ranks(rank, size, folder):
    sdp.Checkpoint(folder, per_rank={"own": tf.Variable(rank)}, **shared(1.0)).save(3)
    if rank == 0:
        for path in (folder / "ranks" / "3").iterdir():
            path.rename(path.with_name(path.name.replace(f"-of-{size}.", f"-of-{size + 1}.", 1)))
    sdp.barrier()
    text = rf"rank 0 could not read its part: .*was saved by {size + 1} ranks, and there are {size} now"
    with pytest.raises(RuntimeError, match=text):
        sdp.Checkpoint(folder, per_rank={"own": tf.Variable(0)}, **shared(0.0)).restore()


def test_the_latest_one_is_broken(rank, folder):
    """The error names it, and its remedy works."""
    variables = shared(1.0)
    checkpoint = sdp.Checkpoint(folder, **variables)
    for step in (1, 2):
        checkpoint.save(step)
        variables["weight"].assign_add([1.0, 1.0])
    if rank == 0:
        (folder / "ckpt-2.index").write_bytes(b"no index" * 20)
    sdp.barrier()
    other = shared(0.0)
    with pytest.raises(
        RuntimeError, match=r"could not read .*saved/ckpt-2 \(.*name that in .*saved/checkpoint\)"
    ):
        sdp.Checkpoint(folder, **other).restore()
    if rank == 0:
        (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"')
    sdp.barrier()
    assert sdp.Checkpoint(folder, **other).restore() == 1
    assert_equal(other["weight"].numpy(), np.array([1.0, 2.0], np.float32), "the weight of step 1")


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


def test_what_a_killed_process_has_left_is_deleted(rank, folder):
    left = ["ckpt-9.index.tempstate12", "checkpoint.tmp" + "0f" * 16]
    files = ["index", "data-00000-of-00001"]
    left += [f"ranks/9/rank-{rank}-of-3.{kind}{end}" for kind in files for end in ("", ".tempstate5")]
    left += [f"ranks/9/rank-1-of-3_temp/part-00000-of-00001.{kind}" for kind in files]
    if rank == 0:
        for name in left:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    sdp.barrier()
    sdp.Checkpoint(folder, per_rank={"own": tf.Variable(rank)}, **shared(1.0)).save(10)
    assert [path.name for path in (folder / "ranks").iterdir()] == ["10"]
    assert not list(folder.glob("*.tempstate*")) + list(folder.glob("checkpoint.tmp*"))
    sdp.barrier()


def _files_beside(folder, elsewhere):
    """Makes files and links that are no checkpoint's, and returns what must stay, the files last."""
    files = [elsewhere / "7" / name for name in ("rank-0-of-1.index", "my_file")]
    files += [elsewhere / name for name in ("part-00000-of-00001.index", "ckpt-1.index.tempstate1")]
    files += [folder / "ranks" / name / "file" for name in ("my_notes", "4", "5.old", "-6", "12345678901")]
    files += [folder / "ranks" / "4" / name for name in ("rank-0-of-2.index.mine", "my-rank-0-of-2.index")]
    files += [folder / "ranks" / "4" / "rank-0-of-1.index" / "file", folder / "ranks" / "file"]
    files += [
        folder / name for name in ("x.tempstate", "my.tempstate.csv", "checkpoint.tmp", "checkpoint.tmpl")
    ]
    files += [folder / "ckpt-1.index.tempstate1" / "file"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    links = {"ranks/elsewhere": elsewhere, "ranks/7": elsewhere / "7", "ranks/4/rank-0-of-1_temp": elsewhere}
    links |= {"ranks/4/rank-1-of-2.index": files[0], "ckpt-2.index.tempstate1": files[0]}
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return [folder / name for name in links] + files


@pytest.mark.parametrize("own", [False, True])
def test_other_files_and_links_in_the_folder_stay(rank, folder, tmp_path, own):
    beside = _files_beside(folder, tmp_path / "elsewhere") if rank == 0 else []
    if rank == 0:  # also one that a rank has written there once
        part = folder / "ranks" / "4" / "rank-1-of-3.index"
        part.touch()
    sdp.barrier()
    per_rank = {"own": tf.Variable(rank)} if own else None
    checkpoint = sdp.Checkpoint(folder, max_to_keep=1, per_rank=per_rank, **shared(1.0))
    for step in (10, 20):
        checkpoint.save(step)
    assert [path for path in beside if not path.is_symlink() and not path.is_file()] == []
    if rank == 0:
        assert part.exists() == (not own)
        assert not (folder / "ranks" / "10").exists()
    sdp.barrier()


def test_the_same_in_a_store(rank):
    """In place of one, TensorFlow's file system in a process's memory."""
    folder = "ram://saved"
    files = tf.io.gfile
    for name in ("4/rank-0-of-1.index", "5/rank-0-of-1.index", "5/file", "notes/file"):
        files.makedirs(f"{folder}/ranks/{name}".rpartition("/")[0])
        files.GFile(f"{folder}/ranks/{name}", "w").write("mine")
    checkpoint = sdp.Checkpoint(folder, max_to_keep=1, per_rank={"own": tf.Variable(rank)}, **shared(1.0))
    for step in (10, 20):
        checkpoint.save(step)
    if rank == 0:
        assert sorted(files.listdir(f"{folder}/ranks")) == ["20", "5", "notes"]
        assert files.listdir(f"{folder}/ranks/5") + files.listdir(f"{folder}/ranks/notes") == ["file"] * 2


def test_a_link_in_place_of_the_parts_is_not_followed(rank, folder, tmp_path):
    if rank == 0:
        elsewhere = tmp_path / "elsewhere"
        (elsewhere / "1").mkdir(parents=True)
        (elsewhere / "1" / "rank-0-of-1.index").touch()
        folder.mkdir()
        (folder / "ranks").symlink_to(elsewhere)
    sdp.barrier()
    sdp.Checkpoint(f"file://{folder}", per_rank={"own": tf.Variable(rank)}, **shared(1.0)).save(2)
    if rank == 0:
        assert (elsewhere / "1" / "rank-0-of-1.index").exists()
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
