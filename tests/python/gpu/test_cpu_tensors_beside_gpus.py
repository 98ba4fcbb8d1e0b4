"""Tensors of the CPU lie in the arena on hosts with GPUs, too, but for those that functions copy to a GPU."""

from pretend_gpu import run

BYTES = 1 << 18

SCRIPT = f"""
sdp.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[sdp.local_rank()], "GPU")
COUNT = {BYTES} // 4


def total(value):
    with tf.device("/CPU:0"):
        return sdp.allreduce(value, 0, 1, op=sdp.ReduceOp.SUM)


def make(device, value):
    with tf.device(device):
        return tf.fill([COUNT], value)


def staged(call, wanted):
    sdp.stats(reset=True)
    assert np.all(call().numpy() == wanted), wanted
    figures = sdp.stats()["collectives"]["allreduce"]
    assert figures["bytes"] == {BYTES} and figures["nccl_bytes"] == 0, figures
    return figures["staged_bytes"]


with tf.device("/CPU:0"):
    on_host = make("/CPU:0", 2.0)
    variable = tf.Variable(on_host)
    report("made", staged(lambda: total(on_host), 4))
    report("variable", staged(lambda: total(variable), 4))
    report("computed in a function", staged(tf.function(lambda: total(on_host * 2.0)), 8))
    on_gpu = make("/GPU:0", 3.0)
    report("copied from a GPU", staged(lambda: total(tf.identity(on_gpu)), 6))
report("copied from a GPU in a function", staged(tf.function(lambda: total(make("/GPU:0", 1.0))), 2))


@tf.function
def to_gpu():
    with tf.device("/CPU:0"):
        value = on_host * 2.0
    found = total(value)
    with tf.device("/GPU:0"):
        return found + 1.0


report("copied to a GPU in a function", staged(to_gpu, 9))
"""


def test_what_is_staged(gpus):
    gpus(2)
    wanted = {
        "made": 0,
        "variable": 0,
        "computed in a function": 0,
        "copied from a GPU": 0,
        "copied from a GPU in a function": BYTES,
        "copied to a GPU in a function": BYTES,
    }
    assert run(SCRIPT, num_processes=2).reports == [wanted] * 2
