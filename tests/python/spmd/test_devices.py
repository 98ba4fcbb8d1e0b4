"""Eager collectives run on the device that their ops are put on."""

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.gpu

COLLECTIVES = {
    "allreduce": lambda x: sdp.allreduce(x, 0, 1),
    "grouped_allreduce": lambda x: sdp.grouped_allreduce([x, x])[1],
    "oob_allreduce": sdp.oob_allreduce,
    "broadcast": lambda x: sdp.broadcast(x, 0),
    "allgather": sdp.allgather,
    "reducescatter": sdp.reducescatter,
    "alltoall": lambda x: sdp.alltoall(x, [x.shape[0]] + [0] * (sdp.size() - 1))[0],
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_eager(request, name):
    device = "GPU" if request.config.getoption("--collectives-on-gpu") else "CPU"
    with tf.device("CPU:0"):
        tensor = tf.ones([sdp.size(), 3])
    assert COLLECTIVES[name](tensor).device.endswith(f"device:{device}:0")


def nccl_bytes(kind):
    return sdp.stats()["collectives"][kind]["nccl_bytes"]


def test_nccl_takes_what_lies_on_a_gpu_for_each_rank(request, size):
    """And the host takes averages of integers."""
    gpus = tf.config.list_physical_devices("GPU")
    on_gpus = request.config.getoption("--collectives-on-gpu") and 1 < size <= len(gpus)
    sdp.stats(reset=True)
    for _ in range(3):
        found = sdp.allreduce(tf.fill([1000], 1.0), 0, 1)
        assert found.numpy().tolist() == [1.0] * 1000
    assert sdp.allreduce(tf.fill([1000], 7), 0, 1).numpy().tolist() == [7] * 1000
    assert nccl_bytes("allreduce") == (3 * 4000 if on_gpus else 0)
