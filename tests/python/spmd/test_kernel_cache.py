"""In eager mode TensorFlow keeps a kernel for each combination of attributes: names and factors are none."""

import json

import pytest
import tensorflow as tf

import tf_smddp as sdp

pytestmark = pytest.mark.one_tensorflow

CALLS = 400
# TensorFlow's kernel for one takes 18 kB; the bound is a tenth of that.
MOST_BYTES = 1800 * CALLS

X = tf.constant([1.0, 2.0])
COLLECTIVES = {
    "allreduce": lambda i: sdp.allreduce(X, 0, 1, name=f"a_{i}"),
    "prescale": lambda i: sdp.allreduce(X, 0, 1, prescale_factor=1.0 + i * 1e-6),
    "postscale": lambda i: sdp.grouped_reducescatter([X], postscale_factor=1.0 + i * 1e-6),
    "grouped_allreduce": lambda i: sdp.grouped_allreduce([X, X], name=f"b_{i}"),
    "oob_allreduce": lambda i: sdp.oob_allreduce(X, name=f"c_{i}"),
    "allgather": lambda i: sdp.allgather(X, name=f"d_{i}"),
    "reducescatter": lambda i: sdp.reducescatter(X, name=f"e_{i}"),
    "alltoall": lambda i: sdp.alltoall(tf.zeros([sdp.size()]), name=f"f_{i}"),
    "broadcast": lambda i: sdp.broadcast(X, 0, name=f"g_{i}"),
    "barrier": lambda i: sdp.barrier(name=f"h_{i}"),
}


def resident_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_new_names_and_factors_take_no_memory(collective):
    for i in range(100):
        COLLECTIVES[collective](-1 - i)
    before = resident_bytes()
    for i in range(CALLS):
        COLLECTIVES[collective](i)
    assert resident_bytes() - before <= MOST_BYTES


def test_each_call_goes_by_its_own_name(rank, tmp_path):
    """Also where a kernel of the same attributes has had another one."""
    sdp.start_profiler(tmp_path / "trace.json")
    for name in ("loss", "", "accuracy"):
        sdp.allreduce(X, 0, 1, name=name or None)
        sdp.grouped_allgather([X, X], name=name or None)
    sdp.stop_profiler()
    events = json.loads((tmp_path / f"trace.rank{rank}.json").read_text())
    found = {event["name"] for event in events if event["ph"] == "b"} - {"wait for ranks", "move data"}
    group = "SmddpAllgather"
    assert found == {
        *("loss", "loss/0", "loss/1"),
        *("SmddpAllreduce", f"{group}/0", f"{group}/1"),
        *("accuracy", "accuracy/0", "accuracy/1"),
    }
