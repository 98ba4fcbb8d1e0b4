"""Programs with TensorFlow's parameter servers, which smddprun starts: --ps and --between-graph."""

import signal

import pytest
from harness import run_job

PREAMBLE = "import tensorflow as tf\n"
# All tasks write to the report of rank 0, since none is a rank.
BETWEEN_GRAPH = ["--ps", "2", "--between-graph"]

# y is the sum of each row of x, so the loss of one dense layer goes to 0.
COORDINATOR = """
strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

def make_dataset():
    x = tf.random.stateless_normal([256, 8], [3, 4])
    data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True)))
    return data.shuffle(256).repeat().batch(16)

batches = iter(coordinator.create_per_worker_dataset(make_dataset))
"""
KERAS = (
    COORDINATOR
    + """
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)

@tf.function
def step(batches):
    def on_worker(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss
    return strategy.run(on_worker, args=next(batches))

losses = [coordinator.schedule(step, args=(batches,)) for _ in range(200)]
coordinator.join()
report("losses", [float(losses[at].fetch()) for at in (0, -1)])
report("devices", [getattr(each, "value", each).device if hasattr(each, "path") else each.device
                   for each in model.trainable_variables])
"""
)
# Integers: each step is counted once, whichever worker makes it.
VARIABLES = (
    COORDINATOR
    + """
with strategy.scope():
    total = tf.Variable(0, dtype=tf.int64)
    steps = tf.Variable(0, dtype=tf.int64)

@tf.function
def step(number, batches):
    next(batches)
    total.assign_add(number)
    steps.assign_add(1)

for number in range(100):
    coordinator.schedule(step, args=(tf.constant(number, tf.int64), batches))
coordinator.join()
report("sum", [int(steps), int(total)])
report("devices", [total.device, steps.device])
"""
)
FIT = """
strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.05), "mse", steps_per_execution=10)

def make_dataset(context):
    x = tf.random.stateless_normal([256, 8], [3, 4])
    data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True)))
    return data.shuffle(256).repeat().batch(16)

data = tf.keras.utils.experimental.DatasetCreator(make_dataset)
report("losses", model.fit(data, epochs=3, steps_per_epoch=50, verbose=0).history["loss"])
report("devices", [each.device for each in model.trainable_variables])
"""
SESSION = """
v1 = tf.compat.v1
v1.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
server = v1.train.Server(cluster, task["type"], task["index"])
with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{task['type']}")):
    x = tf.random.stateless_normal([16, 8], [3, 4])
    weight, bias = v1.get_variable("weight", [8, 1]), v1.get_variable("bias", [1])
    loss = tf.reduce_mean((x @ weight + bias - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
    ready = v1.get_variable("ready", [], tf.int32, tf.zeros_initializer())
    arrive = ready.assign_add(1)
is_master = task["type"] == "master"
with v1.train.MonitoredTrainingSession(server.target, is_chief=is_master) as session:
    session.run(arrive)
    while session.run(ready) < 2:  # both train
        time.sleep(0.01)
    while session.run(step) < 300:
        session.run(train)
    name = f"{task['type']} {task['index']}"
    report(name, float(session.run(loss)))
    # The master stays until the worker has come as far.
    session.run(arrive)
    while is_master and session.run(ready) < 4:
        time.sleep(0.01)
report("devices", [weight.device, bias.device])
"""
ESTIMATOR = """
import pathlib
v1 = tf.compat.v1

def make_dataset():
    x = tf.random.stateless_normal([256, 8], [3, 4])
    data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True)))
    return data.shuffle(256).repeat().batch(16)

def model(features, labels, mode):
    loss = tf.reduce_mean((v1.layers.dense(features, 1) - labels) ** 2)
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

settings = tf.estimator.RunConfig(sys.argv[1], save_checkpoints_steps=200)
task = json.loads(os.environ["TF_CONFIG"])["task"]
report(f"{task['type']} {task['index']}", [settings.num_ps_replicas, settings.num_worker_replicas])
estimator = tf.estimator.Estimator(model, config=settings)
evaluation = tf.estimator.EvalSpec(make_dataset, steps=5, start_delay_secs=0, throttle_secs=0)
tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(make_dataset, max_steps=400), evaluation)
if settings.is_chief:
    report("checkpoint", tf.train.load_checkpoint(sys.argv[1]).get_tensor("dense/kernel").ravel().tolist())
    report("evaluations", len(list(pathlib.Path(sys.argv[1], "eval").iterdir())))
"""


def run(script, *arguments, options):
    job = run_job(2, script, *arguments, options=options, preamble=PREAMBLE, seconds=150)
    assert job.exit_code == 0, str(job)
    return job, job.reports[0]


@pytest.mark.long
def test_a_coordinator_with_keras():
    job, report = run(KERAS, options=["--ps", "1"])
    first, last = report["losses"]
    assert last < 1e-3 < first, str(job)
    assert all("/job:ps/" in device for device in report["devices"]), str(job)


def test_a_coordinator_with_variables():
    job, report = run(VARIABLES, options=["--ps", "2"])
    assert report["sum"] == [100, 4950], str(job)
    assert ["task:0" in each for each in report["devices"]] == [True, False], str(job)
    assert all("/job:ps/" in device for device in report["devices"]), str(job)


@pytest.mark.long
@pytest.mark.keras(2)  # Keras 3 has no fit with parameter servers.
def test_fit():
    job, report = run(FIT, options=["--ps", "1"])
    assert report["losses"][-1] < 0.01 < report["losses"][0], str(job)
    assert all("/job:ps/" in device for device in report["devices"]), str(job)


@pytest.mark.long
def test_sessions_between_graphs():
    job, report = run(SESSION, options=BETWEEN_GRAPH)
    assert report["master 0"] < 1e-3 and report["worker 0"] < 1e-3, str(job)
    assert sorted(report["devices"]) == ["/job:ps/task:0", "/job:ps/task:1"], str(job)


@pytest.mark.long
@pytest.mark.keras(2)  # Estimators are in TensorFlow as long as Keras 2.
def test_an_estimator(tmp_path):
    job, report = run(ESTIMATOR, str(tmp_path), options=BETWEEN_GRAPH)
    assert report["master 0"] == report["worker 0"] == [2, 2], str(job)
    assert report["checkpoint"] == pytest.approx([1.0] * 8, abs=0.1), str(job)
    assert report["evaluations"] > 0, str(job)


ENDLESS = (
    VARIABLES
    + """
import psutil
# This is a child of a process that the launcher has started.
launcher = psutil.Process().parent().parent()
processes = {"launcher": launcher}
for process in launcher.children(recursive=True):
    if "TF_CONFIG" in process.environ():
        task = json.loads(process.environ()["TF_CONFIG"])["task"]
        processes[f"{task['type']} {task['index']}"] = process
report("found", sorted(processes))
processes[sys.argv[1]].send_signal(int(sys.argv[2]))
while True:
    coordinator.schedule(step, args=(tf.constant(1, tf.int64), batches))
    coordinator.join()
"""
)


@pytest.mark.one_tensorflow
@pytest.mark.parametrize(
    "victim, number",
    [
        ("ps 0", signal.SIGKILL),
        pytest.param("worker 1", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("launcher", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_the_end_of_a_job(victim, number):
    job = run_job(2, ENDLESS, victim, str(int(number)), options=["--ps", "1"], preamble=PREAMBLE, seconds=150)
    assert job.reports[0]["found"] == ["chief 0", "launcher", "ps 0", "worker 0", "worker 1"], str(job)
    assert job.exit_code == 128 + number, str(job)
    if victim == "launcher":
        assert "the job was told to stop by SIGTERM" in job.output, str(job)
    else:
        assert f"smddprun: {victim} failed first: " in job.output, str(job)
        assert "killed by SIGKILL" in job.output, str(job)
