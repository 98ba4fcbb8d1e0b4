"""LocalSGD beside synchronous training and parameter servers: local_sgd.py accuracy|link.

    python benchmarks/local_sgd.py accuracy --seeds 5        # the test accuracy, two ranks on this host
    python benchmarks/local_sgd.py link --rate 100mbit       # the time and the bytes of a step, two hosts

Run it with a Python that has tf_smddp, and the requirements of the examples. Hosts are network namespaces of
this machine, which need root. The ways take turns. Tables are Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

from driver.hosts import Layout
from driver.tables import markdown
from peers.base import ROOT, Job

EVERY = 16
SERVERS = "parameter servers"
WAYS = ("synchronous", "LocalSGD", "DiLoCo")
EPOCHS = {"digits": 20, "transformer": 40}
# Adam's: synchronous training begins with the first, and grows to size() times as much in the first epoch.
RATES = {"digits": 0.003, "transformer": 0.002}
LOCAL_RATES = {"digits": 0.003, "transformer": 0.004}
BATCH = 32
LINK_STEPS = {"digits": 4 * EVERY, "mlp": 2 * EVERY}
COUNTERS = pathlib.Path("/sys/class/net/eth0/statistics")


def wrap(way: str, optimizer: Any) -> Any:
    """Makes a Keras optimizer train in one of WAYS."""
    import tensorflow as tf

    import tf_smddp as sdp

    if way == "synchronous":
        return sdp.DistributedOptimizer(optimizer)
    outer = tf.keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True) if way == "DiLoCo" else None
    return sdp.LocalSGD(optimizer, EVERY, outer)


def make_transformer() -> Any:
    """Two layers of a transformer over the 16 patches of an image of 8 x 8 pixels: 67,000 weights."""
    import numpy as np
    import tensorflow as tf

    layers, width = tf.keras.layers, 64
    given = tf.keras.Input((8, 8, 1))
    x = layers.Reshape((16, width))(layers.Conv2D(width, 2, strides=2)(given))
    x = x + np.random.default_rng(0).normal(size=(1, 16, width)).astype(np.float32)  # their places
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, width // 4, dropout=0.1)(y, y)
        y = layers.Dense(2 * width, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(width)(y)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return tf.keras.Model(given, layers.Dense(10)(x))


def accuracy_of(model_name: str, way: str, seed: int) -> float:
    """Trains on handwritten digits, and returns the test accuracy of the weights of all ranks."""
    sys.path.insert(0, str(ROOT / "examples"))
    import digits
    import numpy as np
    import tensorflow as tf

    import tf_smddp as sdp

    tf.keras.utils.set_random_seed(100 * seed + sdp.rank())
    images, labels, test_images, test_labels = digits.load_images()
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = sdp.shard(data).shuffle(len(labels))
    data = (data.map(digits.shift) if model_name == "digits" else data).batch(BATCH, drop_remainder=True)
    model = {"digits": digits.make_model, "transformer": make_transformer}[model_name]()
    sdp.broadcast_variables(model.weights, root_rank=0)
    rate, epochs = RATES[model_name], EPOCHS[model_name]
    steps = len(labels) // sdp.size() // BATCH
    most = rate * sdp.size()
    if way != "synchronous":
        rate = most = LOCAL_RATES[model_name]
    schedule = tf.keras.optimizers.schedules.CosineDecay(
        rate, epochs * steps, warmup_target=most, warmup_steps=steps
    )
    optimizer = wrap(way, tf.keras.optimizers.Adam(schedule))
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for _ in range(epochs):
        for batch in data:
            step(*batch)
    if way != "synchronous":
        optimizer.synchronize()
    predicted = np.argmax(model(test_images, training=False), axis=1)
    return float(np.mean(predicted == test_labels))


def step_on_link(model_name: str, way: str) -> Tuple[float, float]:
    """Returns the seconds that a step of two batches takes, and the bytes that this host sends and gets."""
    import tensorflow as tf
    from training.models import make_task

    tf.config.threading.set_intra_op_parallelism_threads(1)
    train = train_on_servers(model_name) if way == SERVERS else train_in_ranks(model_name, way, make_task)
    steps = LINK_STEPS[model_name]
    train(EVERY)
    before = bytes_so_far()
    begin = time.perf_counter()
    train(steps)
    seconds = time.perf_counter() - begin
    return seconds / steps, (bytes_so_far() - before) / steps


def bytes_so_far() -> int:
    """The bytes that have crossed this host's link, once all that was sent has left it."""
    time.sleep(1)
    return sum(int((COUNTERS / f"{way}_bytes").read_text()) for way in ("tx", "rx"))


def make_step(task: Any, optimizer: Any) -> Callable[[], Any]:
    import tensorflow as tf

    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(task.labels, task.model(task.images, training=True)))
        variables = task.model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    return step


def train_in_ranks(model_name: str, way: str, make_task: Any) -> Callable[[int], None]:
    import tensorflow as tf

    import tf_smddp as sdp

    sdp.init()
    task = make_task(model_name, BATCH, seed=sdp.rank())
    run = tf.function(make_step(task, wrap(way, tf.keras.optimizers.SGD(0.001, momentum=0.9))))

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = run()
        float(loss)

    return train


def train_on_servers(model_name: str) -> Callable[[int], None]:
    """The chief hands two batches, for each step, to whichever worker is free."""
    import tensorflow as tf
    from training.models import make_task

    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        task = make_task(model_name, BATCH, seed=0)
        optimizer = tf.keras.optimizers.SGD(0.001, momentum=0.9)
        optimizer.build(task.model.trainable_variables)
    # Arrays become constants of the function, which the chief need not send in each step.
    batch = task._replace(images=task.images.numpy(), labels=task.labels.numpy())
    step = make_step(batch, optimizer)
    run = tf.function(lambda: strategy.run(step))

    def train(steps: int) -> None:
        for _ in range(2 * steps):
            coordinator.schedule(run)
        coordinator.join()

    return train


def run_rank(arguments: argparse.Namespace) -> None:
    if arguments.kind == "link":
        found: Any = step_on_link(arguments.model, arguments.way)
    else:
        import tf_smddp as sdp

        sdp.init()
        seeds = range(1, arguments.seeds + 1)
        found = [accuracy_of(arguments.model, arguments.way, seed) for seed in seeds]
    print(f"found: {json.dumps(found)}", flush=True)


def run_job(words: List[str], environment: Dict[str, str]) -> Any:
    """Runs a job, and returns what its first rank, or its chief, has found."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=1500, check=False, cwd="/tmp"
    )
    lines = [line for line in done.stdout.splitlines() if "found: " in line]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return json.JSONDecoder().raw_decode(lines[0].partition("found: ")[2])[0]


def rank_words(arguments: argparse.Namespace, model: str, way: str) -> List[str]:
    options = [f"--model={model}", f"--way={way}", f"--seeds={arguments.seeds}"]
    return [sys.executable, str(pathlib.Path(__file__).resolve()), arguments.kind, *options]


def measure_accuracy(arguments: argparse.Namespace) -> None:
    rows = []
    for model in EPOCHS:
        for way in WAYS:
            words = [sys.executable, "-m", "smddprun", "-np", "2", "--no-tag-output"]
            found = run_job([*words, *rank_words(arguments, model, way)], {})
            cells = [f"{value:.2%}" for value in (statistics.mean(found), *found)]
            rows.append([model, way, *cells])
            print(rows[-1], flush=True)
    print(markdown(["model", "way", "mean", *(f"seed {n + 1}" for n in range(arguments.seeds))], rows))


def measure_link(arguments: argparse.Namespace) -> None:
    layout = Layout((1, 1), arguments.rate)
    rows = []
    for model in LINK_STEPS:
        found: Dict[str, List[Tuple[float, float]]] = {way: [] for way in (*WAYS, SERVERS)}
        for _ in range(arguments.rounds):
            for way, all_of_way in found.items():
                with layout.hosts() as hosts:
                    words = rank_words(arguments, model, way)
                    if way == SERVERS:
                        job = layout.job_of_servers(hosts, Job(words, {}))
                    else:
                        job = layout.job(hosts, Job(words, {}))
                    environment = {**job.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
                    all_of_way.append(run_job(job.command, environment))
                print(model, way, all_of_way[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
        for way, all_of_way in found.items():
            seconds, sent = zip(*all_of_way)
            rows.append([model, way, f"{1e3 * statistics.median(seconds):.3g} ms", f"{sent[0] / 1e6:.3g} MB"])
    print(markdown(["model", "way", f"a step at {arguments.rate}", "bytes of a step"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure LocalSGD.")
    parser.add_argument("kind", choices=["accuracy", "link"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rate", default="100mbit", help="what a host's link sends at most, as for tc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        run_rank(arguments)
    elif arguments.kind == "accuracy":
        measure_accuracy(arguments)
    else:
        measure_link(arguments)


if __name__ == "__main__":
    main()
