"""TensorFlow's build for GPUs, on the pretend GPU (tests/pretend_gpu), computes what it computes on the CPU.

It runs in .venv/gpu-VERSION (`make gpu-test`), whose folder pretend_gpu stands in for CUDA's libraries.
"""

import signal

import pytest
from harness import run_job
from pretend_gpu import GROWTH, run

# Which missing wait each of them finds is in the README of the pretend GPU.
POLICIES = ["random", "prompt", "lazy", "drawn", "tensorflow=lazy,*=prompt", "tensorflow=prompt,*=lazy"]


def test_devices(gpus):
    gpus(2)
    job = run(
        """
report("devices", [gpu.name for gpu in tf.config.list_physical_devices("GPU")])
with tf.device("/GPU:0"):
    x = on("GPU:0", tf.constant([1.0, 2.0, 3.0]))
with tf.device("/GPU:1"):
    y = on("GPU:1", tf.identity(x))
    variable = tf.Variable(y)
    assert variable.device.endswith("GPU:1")
    variable.assign_add(y)
with tf.device("/GPU:0"):
    report("sum", on("GPU:0", variable + x).numpy().tolist())
report("peak", [tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"] for i in range(2)])
"""
    )
    (found,) = job.reports
    assert found["devices"] == ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    assert found["sum"] == [3.0, 6.0, 9.0]
    assert all(0 < peak < 1 << 20 for peak in found["peak"])


@pytest.mark.long
def test_without_memory_growth_tensorflow_takes_the_devices_memory(gpus):
    gpus(1)
    job = run_job(
        1,
        """
with tf.device("/GPU:0"):
    x = tf.constant([1.0, 2.0])
    report("sum", (x + x).numpy().tolist())
""",
        launcher=False,
    )
    assert job.exit_code == 0, str(job)
    assert job.reports[0]["sum"] == [2.0, 4.0]


@pytest.mark.long
def test_no_device(gpus):
    gpus(0)
    job = run('report("devices", [gpu.name for gpu in tf.config.list_physical_devices("GPU")])')
    assert job.reports[0]["devices"] == []


# Least squares by gradient descent, y = a * x + b for each element.
TRAINING = """
STEPS = 5


def train(device, mode, update):
    random = np.random.default_rng(3)
    with tf.device(device):
        x, wanted = (tf.constant(random.standard_normal(100), tf.float32) for _ in range(2))
        a, b = tf.Variable(tf.ones([100])), tf.Variable(tf.zeros([100]))
        # Where this would be made on the GPU, each step would wait for its copy to the host.
        with tf.device("/CPU:0"):
            rate = tf.constant(10.0)

        def step():
            with tf.GradientTape() as tape:
                error = a * x + b - wanted
                loss = tf.reduce_mean(error * error)
            for variable, gradient in zip((a, b), tape.gradient(loss, (a, b))):
                assert device[1:] in gradient.device or not tf.executing_eagerly()
                if update == "op":
                    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
                else:
                    variable.assign_sub(10.0 * gradient)
            return tf.identity(a)

        def loop():
            return tf.while_loop(
                lambda i, _: i < STEPS, lambda i, _: (i + 1, tf.cond(i >= 0, step, lambda: a + 1.0)), [0, a]
            )[1]

        if mode == "loop":
            last = tf.function(loop)()
        else:
            step = tf.function(step) if mode == "function" else step
            for _ in range(STEPS):
                last = step()
    return a.numpy(), b.numpy(), last.numpy()


for mode in ("eager", "function", "loop"):
    for update in ("op", "assign"):
        wanted = train("/CPU:0", mode, update)
        assert np.any(np.abs(wanted[0] - 1) > 0.1) and np.any(np.abs(wanted[1]) > 0.1)
        for _ in range(3):
            for found, value in zip(train("/GPU:0", mode, update), wanted):
                np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
        report(f"{mode} {update}", True)
"""


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_training_equals_the_cpus(gpus, policy):
    gpus(1, policy)
    (found,) = run(TRAINING).reports
    assert len(found) == 6


KERNELS = """
def values(dtype, first):
    return tf.cast(tf.constant([first, 2.0, -3.0, 0.0, 5.0]), dtype)


BINARY = {"add": tf.add, "sub": tf.subtract, "mul": tf.multiply}
# Not for bfloat16.
COMPARISONS = {
    "equal": tf.equal,
    "not_equal": tf.not_equal,
    "less": tf.less,
    "less_equal": tf.less_equal,
    "greater": tf.greater,
    "greater_equal": tf.greater_equal,
}
UNARY = {
    "fill": lambda x: tf.fill([7], tf.cast(3, x.dtype)),
    "add_n of 2": lambda x: tf.add_n([x, x]),
    "add_n of 3": lambda x: tf.add_n([x, x, x]),
    "add_n of 4": lambda x: tf.add_n([x, x, x, x]),
    "slice": lambda x: x[1:3],
    "slice of 2 dimensions": lambda x: tf.stack([x, x, x])[1:, 2:4],
    "slice of 3 dimensions": lambda x: tf.reshape(tf.concat([x, x], 0), [1, 5, 2])[:, 1:3, 1:],
    "tile": lambda x: tf.tile(x, [3]),
    "broadcast": lambda x: tf.broadcast_to(x, [2, 5]),
    "concat": lambda x: tf.concat([x, x], 0),
}


# Not for the 16-bit types: kernels that TensorFlow compiles at run time.
COMPILED = {
    "neg": tf.negative,
    "square": tf.square,
    "abs": tf.abs,
    "relu": tf.nn.relu,
    "maximum": lambda x: tf.maximum(x, x * x),
    "minimum": lambda x: tf.minimum(x * x, x),
    "squared_difference": lambda x: tf.math.squared_difference(x, x * x),
    "broadcasting maximum": lambda x: tf.maximum(tf.reshape(x, [5, 1]), x),
    "where": lambda x: tf.where(x > tf.cast(1, x.dtype), x, x * x),
    "zeros_like": tf.zeros_like,
    "ones_like": tf.ones_like,
}


def assigned(name):
    def change(x):
        variable = tf.Variable(x)
        getattr(variable, name)(x + x)
        return variable.read_value()

    return change


UNARY.update({name: assigned(name) for name in ("assign", "assign_add", "assign_sub")})


def gradient_descent(x):
    variable = tf.Variable(x)
    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=tf.cast(0.5, x.dtype), delta=x)
    return variable.read_value()


def check(name, function, *arguments):
    with tf.device("/CPU:0"):
        wanted = function(*(tf.identity(each) for each in arguments))
    with tf.device("/GPU:0"):
        found = on("GPU:0", function(*(tf.identity(each) for each in arguments)))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
    assert np.array_equal(found.numpy(), wanted.numpy()), (name, found.numpy(), wanted.numpy())


FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
for dtype in (*FLOATS, tf.int64):
    with tf.device("/CPU:0"):
        x, y, two = values(dtype, 1.0), values(dtype, -1.0), tf.cast(2.0, dtype)
        divisors = tf.cast(tf.constant([2.0, 4.0, -8.0, 1.0, -0.5]), dtype)
    for name, function in {**BINARY, **(COMPARISONS if dtype != tf.bfloat16 else {})}.items():
        check(f"{name} {dtype.name}", function, x, y)
        check(f"{name} {dtype.name} scalar", function, x, two)
        check(f"scalar {name} {dtype.name}", function, two, x)
    if dtype.is_floating:
        check(f"div {dtype.name}", tf.divide, x, divisors)
        check(f"div {dtype.name} scalar", tf.divide, x, two)
        check(f"scalar div {dtype.name}", tf.divide, two, divisors)
    if dtype in (tf.float32, tf.float64, tf.float16):
        check(f"gradient descent {dtype.name}", gradient_descent, x)
    unary = dict(UNARY)
    if dtype in (tf.float32, tf.float64, tf.int64):
        unary.update(COMPILED)
    for name, function in unary.items():
        check(f"{name} {dtype.name}", function, x)
    for to in FLOATS:
        check(f"cast {dtype.name} to {to.name}", lambda each, to=to: tf.cast(each, to), x)
for dtype in (tf.float32, tf.float64):
    for count in (1, 300, 4096, 4097, 100000):
        with tf.device("/CPU:0"):
            x = tf.cast(tf.range(count) % 7, dtype)  # sums are exact
        check(f"sum of {count} {dtype.name}", tf.reduce_sum, x)
        check(f"mean of {count} {dtype.name}", tf.reduce_mean, x)
report("done", True)
"""


def test_kernels(gpus):
    gpus(1)
    assert run(KERNELS).reports[0]["done"]


@pytest.mark.pretend_gpu
def test_an_unknown_kernel_ends_the_process_with_its_name(gpus):
    gpus(1)
    job = run_job(1, GROWTH + 'with tf.device("/GPU:0"):\n    tf.sin(tf.constant([1.0]))\n', launcher=False)
    assert job.exit_code == -signal.SIGABRT, str(job)
    assert "kernel Sin_GPU_DT_FLOAT_DT_FLOAT_kernel" in job.output and "has no twin" in job.output, str(job)


@pytest.mark.long
@pytest.mark.pretend_gpu
def test_broadcasting_ends_the_process_with_its_name(gpus):
    gpus(1)
    script = 'with tf.device("/GPU:0"):\n    tf.ones([3, 4]) + tf.ones([4])\n'
    job = run_job(1, GROWTH + script, launcher=False)
    assert job.exit_code == -signal.SIGABRT, str(job)
    assert "the twin of kernel AddV2_GPU_DT_FLOAT_DT_FLOAT_kernel knows" in job.output, str(job)


FUNCTIONS = """
def compute(x, count):
    for _ in tf.range(count):
        x = tf.where(x > 5.0, x * 0.5, x + 3.0)
    if tf.constant(True):
        x = x - 1.0
    # Kernels of several sizes cannot become one.
    return [x, *(x[:i] * 2.0 + 1.0 for i in (1, 10, 100, 200, 300, 400))]


count = tf.constant(7)
results = {}
for device in ("CPU:0", "GPU:0"):
    with tf.device(device):
        x = tf.constant(np.arange(1000, dtype=np.float32))
        compiled = tf.function(compute, jit_compile=True)
        for _ in range(3):
            results[device] = [on(device, each).numpy() for each in compiled(x, count)]
for of_cpu, of_gpu in zip(*results.values()):
    np.testing.assert_array_equal(of_cpu, of_gpu)
"""


@pytest.mark.long
@pytest.mark.parametrize("policy", ["random", "lazy"])
def test_functions_that_xla_compiles(gpus, policy):
    gpus(1, policy)
    run(FUNCTIONS)
