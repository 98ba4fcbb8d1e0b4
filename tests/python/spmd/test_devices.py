"""Eager collectives run on the device that their ops are put on."""

import os

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


def gpus_of(request):
    on_gpus = request.config.getoption("--collectives-on-gpu")
    return len(tf.config.list_physical_devices("GPU")) if on_gpus else 0


def allreduce_stats():
    return sdp.stats()["collectives"]["allreduce"]


def test_nccl_takes_what_lies_on_a_gpu_for_each_rank(request, size):
    """And the host takes averages of integers, and all else where ranks share a GPU or have no NCCL."""
    with_nccl = 1 < size <= gpus_of(request) and os.environ.get("SMDDP_NCCL") != "0"
    sdp.stats(reset=True)
    for _ in range(3):
        found = sdp.allreduce(tf.fill([1000], 1.0), 0, 1)
        assert found.numpy().tolist() == [1.0] * 1000
    assert sdp.allreduce(tf.fill([1000], 7), 0, 1).numpy().tolist() == [7] * 1000
    assert allreduce_stats()["nccl_bytes"] == (3 * 4000 if with_nccl else 0)
