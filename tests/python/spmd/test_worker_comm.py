"""get_worker_comm: mpi4py's lower-case methods, without MPI."""

import threading

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_rank


def test_rank_and_size(rank, size):
    comm = sdp.get_worker_comm()
    assert (comm.rank, comm.Get_rank(), comm.size, comm.Get_size()) == (rank, rank, size, size)
    assert sdp.get_worker_comm() is comm


def test_objects(rank, size):
    comm = sdp.get_worker_comm()
    everybody = [{"rank": each} for each in range(size)]
    assert comm.allgather({"rank": rank}) == everybody
    for root in range(size):
        assert comm.bcast({"rank": rank}, root) == {"rank": root}
        assert comm.gather({"rank": rank}, root=root) == (everybody if rank == root else None)
    assert comm.bcast(rank) == 0
    assert (comm.gather(rank) is None) == (rank != 0)


def test_barriers_wait(rank, size):
    comm = sdp.get_worker_comm()
    assert comm.barrier() is None
    assert comm.Barrier() is None
    with tf.Graph().as_default() as graph:
        comm.Barrier()
        assert comm.bcast(rank, root=size - 1) == size - 1
        assert not graph.get_operations()


def test_only_the_root_unpickles(rank, size):
    """Only rank 0 can make an object of this."""

    class Local:
        def __reduce__(self):
            return _only_on_rank_0, ()

    assert sdp.get_worker_comm().gather(Local()) == ([0] * size if rank == 0 else None)


def _only_on_rank_0():
    assert sdp.rank() == 0
    return 0


def test_errors(rank, size):
    comm = sdp.get_worker_comm()
    with pytest.raises(TypeError, match=r"get_worker_comm\(\).gather\(\): rank 0 could not pickle"):
        comm.gather(threading.Lock() if rank == 0 else rank)
    with pytest.raises(ValueError, match=r"get_worker_comm\(\).bcast\(\) needs 0 <= root_rank"):
        comm.bcast(1, size)
    with pytest.raises(AttributeError, match=r"no 'Allreduce', only: Barrier, Get_rank, .*allgather, .*size"):
        comm.Allreduce  # noqa: B018
    for call in (comm.barrier, lambda: comm.bcast(1)):
        with pytest.raises(RuntimeError, match=r"get_worker_comm\(\)\.\w+\(\) was called while"):
            tf.function(call)()
