"""Unmodified scripts of tf.distribute's on several ranks, which equal one process with the global batch."""

import contextlib
import http.server
import importlib.util
import io
import json
import pathlib
import re
import tarfile
import threading
import time

import numpy as np
import pytest
from harness import run_job

SCRIPTS = pathlib.Path(__file__).with_name("scripts")
STRATEGY = ["--strategy"]


def found(job, ranks):
    assert job.exit_code == 0, str(job)
    assert not job.leftovers, str(job)
    by_rank = [json.loads(line) for line in re.findall(r"FOUND (\{.*\})", job.output)]
    assert len(by_rank) == ranks, str(job)
    assert all(each == by_rank[0] for each in by_rank), by_rank  # the digest of the weights is among it
    return by_rank[0]


def assert_close(several, one):
    for key in ("losses", "evaluated", "weights"):
        np.testing.assert_allclose(several[key], one[key], rtol=2e-4, err_msg=key)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_keras_script_for_one_process(ranks, tmp_path):
    script = str(SCRIPTS / "distribute_keras_fit.py")
    several = run_job(ranks, script, str(tmp_path), str(120 // ranks), options=STRATEGY)
    alone = tmp_path / "alone"
    alone.mkdir()
    one = run_job(1, script, str(alone), "120", launcher=False)
    assert_close(found(several, ranks), found(one, 1))
    files = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    logs = {"logs"} if importlib.util.find_spec("tensorboard") else set()
    assert files - {"alone"} == {"training_checkpoints", "log.csv", "model.keras"} | logs
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
    assert len(list(tmp_path.glob("logs/train/events*.v2"))) == len(logs)


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_a_loop_for_several_workers(ranks, tmp_path):
    script = str(SCRIPTS / "distribute_custom_loop.py")
    several = run_job(ranks, script, str(tmp_path), options=STRATEGY)
    (tmp_path / "alone").mkdir()
    one = run_job(1, script, str(tmp_path / "alone"), options=STRATEGY)
    assert_close(found(several, ranks), found(one, 1))
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("*.index"))
    assert names == ["ckpt-2.index", "ckpt-3.index"]


@pytest.mark.keras(2)  # TensorFlow has estimators as long as Keras 2
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_an_estimator(ranks, tmp_path):
    script = str(SCRIPTS / "distribute_estimator.py")
    several = run_job(ranks, script, str(tmp_path), options=STRATEGY)
    (tmp_path / "alone").mkdir()
    one = run_job(1, script, str(tmp_path / "alone"), launcher=False)
    assert_close(found(several, ranks), found(one, 1))


SHUFFLES = """
import pathlib
import numpy as np
strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

def elements(dataset):
    distributed = strategy.experimental_distribute_dataset(dataset)
    return np.concatenate([np.ravel(value) for batch in distributed
                           for value in strategy.experimental_local_results(batch)])

if sdp.rank() == 0:
    next(iter(tf.data.Dataset.range(9).shuffle(9)))  # of one rank alone
numbers = tf.data.Dataset.range(1000).shuffle(1000).batch(100)
first, second = elements(numbers), elements(numbers)
report("epoch", first.tolist())
report("differs", bool((first != second).any()))
others = elements(tf.data.Dataset.range(1000).shuffle(1000).batch(100))
report("one seed for all", bool((others == first).all()))
folder = pathlib.Path(sys.argv[1])
names = elements(tf.data.Dataset.list_files(str(folder / "*")).batch(8))
report("files", [pathlib.Path(name.decode()).name for name in names])
permutation = tf.data.Dataset.range(1).map(lambda _: tf.random.shuffle(tf.range(100))).unbatch().batch(10)
report("indices", elements(permutation).tolist())
halves = [tf.data.Dataset.range(200), tf.data.Dataset.range(1000, 1200)]
mixed = tf.data.Dataset.sample_from_datasets(halves, weights=[0.5, 0.5]).batch(20)
report("mixed", elements(mixed).tolist())
report("mixed anew", bool((elements(mixed)[:100] != elements(mixed)[:100]).any()))
repeated = tf.data.Dataset.range(200).apply(tf.data.experimental.shuffle_and_repeat(200, count=1))
report("repeated", elements(repeated.batch(20)).tolist())
report("numpy", np.random.permutation(50).tolist())
report("set", list({f"word {i}" for i in range(50)}))

seen = []
class Model(tf.keras.Sequential):
    def train_step(self, data):
        tf.py_function(lambda x: seen.extend(np.ravel(x).tolist()), [data[0]], [])
        return {"zero": tf.constant(0.0)}
with strategy.scope():
    model = Model([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.arange(96.0).reshape(-1, 1)
model.fit(x, x, batch_size=16, epochs=1, verbose=0)
report("array", seen)
"""


def test_unseeded_shuffles_are_alike(tmp_path):
    names = [f"{i}.txt" for i in range(16)]
    for name in names:
        (tmp_path / name).write_text("")
    job = run_job(2, SHUFFLES, str(tmp_path), options=STRATEGY)
    assert job.exit_code == 0, str(job)
    first, second = job.reports
    assert sorted(first["epoch"] + second["epoch"]) == list(range(1000))
    assert first["differs"] and not first["one seed for all"]
    assert sorted(first["files"] + second["files"]) == sorted(names)
    assert sorted(first["indices"] + second["indices"]) == list(range(100))
    assert sorted(first["mixed"] + second["mixed"]) == [*range(200), *range(1000, 1200)]
    assert first["mixed anew"] and second["mixed anew"]
    assert sorted(first["repeated"] + second["repeated"]) == list(range(200))
    assert first["numpy"] == second["numpy"]
    assert first["set"] == second["set"]
    # A trace may call the function once more, with the first batch.
    assert set(first["array"]).isdisjoint(second["array"])
    assert sorted({*first["array"], *second["array"]}) == list(range(96))


GENERATOR = """
import collections
import numpy as np

def aligned(values):
    space = np.empty(values.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    result = space[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    result[...] = values
    return result

x = aligned(np.arange(1.0, 97.0, dtype=np.float32)[:, None])
y = aligned(2.0 * x)

def batches():
    for first in range(0, 96, 16):
        yield collections.OrderedDict(x=x[first : first + 16]), y[first : first + 16]

spec = tf.TensorSpec((None, 1))
dataset = tf.data.Dataset.from_generator(batches, output_signature=(collections.OrderedDict(x=spec), spec))
with tf.distribute.MirroredStrategy().scope():
    inputs = tf.keras.Input((1,), name="x")
    model = tf.keras.Model({"x": inputs}, tf.keras.layers.Dense(1, kernel_initializer="ones")(inputs))
    model.compile(tf.keras.optimizers.SGD(0.0), "mse")
losses = model.fit(dataset, epochs=2, verbose=0).history["loss"]
report("losses", losses)
report("is as before", bool((y == np.arange(2.0, 194.0, 2.0)[:, None]).all() and (2.0 * x == y).all()))
"""


def test_the_scripts_own_arrays_are_not_overwritten():
    """TensorFlow computes in place in a part of a batch, which may be a part of what a generator yields."""
    job = run_job(2, GENERATOR, options=STRATEGY)
    assert job.exit_code == 0, str(job)
    for report in job.reports:
        assert report["is as before"], str(job)
        assert report["losses"][0] == pytest.approx(report["losses"][1])


FILES = """
import os, pathlib, warnings
import numpy as np
folder = sys.argv[1]
archive = tf.keras.utils.get_file("archive.tar.gz", sys.argv[3], cache_dir=folder, extract=True)
texts = [path.read_text() for path in pathlib.Path(folder, "datasets").rglob("text")]
report("fetched", [os.path.relpath(archive, folder), *map(len, texts)])
strategy = tf.distribute.MirroredStrategy()
x = np.arange(64.0).reshape(32, 2)
if sys.argv[2] == "first":
    os.makedirs(os.path.join(folder, "made", "once"))
    os.mkdir(os.path.join(folder, "made", "twice"))
    pathlib.Path(folder, "made", "thrice").mkdir()
    pathlib.Path(folder, "made", "path", "within").mkdir(parents=True)
else:
    for make in (os.mkdir, os.makedirs, lambda path: pathlib.Path(path).mkdir(parents=True)):
        try:
            make(os.path.join(folder, "made", "once"))
            report("made what is there", True)
        except FileExistsError:
            pass

class Ends(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        report(f"epoch {epoch} of {sys.argv[2]}", True)
        if epoch == 2 and sys.argv[2] == "first":
            raise SystemExit(0)

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
backup = tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))
model.fit(x, x.sum(1), batch_size=8, epochs=4, verbose=0, callbacks=[backup, Ends()])
report("steps", int(model.optimizer.iterations.numpy()))
for i in range(3):
    path = tf.train.Checkpoint(model=model).save(os.path.join(folder, "saved", "ckpt"))
    tf.train.Checkpoint(model=model).restore(path).assert_existing_objects_matched()
    report(f"path {i}", path)
tf.saved_model.save(tf.Module(), os.path.join(folder, "module"))
tf.saved_model.load(os.path.join(folder, "module"))
model.export(os.path.join(folder, "exported"))
exported = tf.saved_model.load(os.path.join(folder, "exported"))
served = exported.serve(tf.constant(x, tf.float32)).numpy()
report("served", float(abs(served - model.predict(x, verbose=0)).max()))
writer = tf.summary.create_file_writer(os.path.join(folder, "logs"))
with writer.as_default():
    tf.summary.experimental.set_step(1)
writer.close()
cached = tf.data.Dataset.range(16).batch(4).cache(os.path.join(folder, "cached"))
for each in range(2):
    batches = strategy.experimental_distribute_dataset(cached)
    sums = [strategy.run(tf.reduce_sum, args=(batch,)) for batch in batches]
    report(f"sum {each}", int(strategy.reduce("SUM", sum(sums), axis=None)))
"""


@contextlib.contextmanager
def slow_server(content):
    """Yields the server's address, and a list of the paths that it was asked for."""
    paths = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            time.sleep(0.3)
            self.wfile.write(content[len(content) // 2 :])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


def archive_of(text):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        info = tarfile.TarInfo("text")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    return archive.getvalue()


def test_rank_0_writes_and_all_read(tmp_path):
    with slow_server(archive_of(b"x" * 1000000)) as (address, asked):
        arguments = [f"{address}/archive.tar.gz"]
        first = run_job(2, FILES, str(tmp_path), "first", *arguments, options=STRATEGY)
        assert first.exit_code == 0, str(first)
        assert (tmp_path / "backup").exists()
        second = run_job(2, FILES, str(tmp_path), "second", *arguments, options=STRATEGY)
        assert second.exit_code == 0, str(second)
    assert asked == ["/archive.tar.gz"]
    for job in (first, second):
        assert job.reports[0]["fetched"] == job.reports[1]["fetched"]
        assert job.reports[0]["fetched"][1:] == [1000000]
    for report in second.reports:
        assert "epoch 2 of second" in report and "epoch 1 of second" not in report, str(second)
        assert report["steps"] == 16
        assert report["served"] < 1e-4, str(second)
        assert "made what is there" not in report
        assert report["sum 0"] == report["sum 1"] == sum(range(16))
    assert second.reports[0] == second.reports[1]
    assert not list((tmp_path / "backup").rglob("*.*"))
    assert len(list((tmp_path / "logs").iterdir())) == 1
    names = {path.name for path in tmp_path.glob("cached*.index")}
    assert names == {"cached.rank0of2.index", "cached.rank1of2.index"}


@pytest.mark.one_tensorflow
def test_a_model_that_one_rank_saves_alone(tmp_path):
    job = run_job(
        2,
        """
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    v = tf.Variable(1.0)
if sdp.rank() == 0:
    tf.train.Checkpoint(v=v).write(sys.argv[1] + "/alone")
else:
    strategy.reduce("SUM", 1.0, axis=None)
""",
        str(tmp_path),
        options=STRATEGY,
    )
    assert job.exit_code != 0
    assert "write() (which each rank must call)" in job.output, str(job)


@pytest.mark.one_tensorflow
def test_input_functions_that_give_all_data():
    job = run_job(
        2,
        """
import numpy as np
strategy = tf.distribute.MirroredStrategy()

def all_data(context):
    return tf.data.Dataset.range(8).batch(2)

def own_part(context):
    return tf.data.Dataset.range(8).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

for function in (all_data, own_part):
    dataset = strategy.distribute_datasets_from_function(function)
    batches = [strategy.experimental_local_results(each)[0].numpy().tolist() for each in dataset]
    report(function.__name__, batches)
""",
        options=STRATEGY,
    )
    assert job.exit_code == 0, str(job)
    assert [each["all_data"] for each in job.reports] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert [each["own_part"] for each in job.reports] == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    assert job.output.count("does not use its InputContext") == 1, str(job)
    assert "the input function 'all_data'" in job.output


@pytest.mark.one_tensorflow
def test_a_script_without_a_strategy_is_told():
    job = run_job(2, "report('environ', json.loads(os.environ['TF_CONFIG'])['task'])", options=STRATEGY)
    assert job.exit_code == 0, str(job)
    assert job.output.count("the script has made no strategy") == 1, str(job)
    assert "TF_CONFIG is set" not in job.output
    assert [each["environ"]["index"] for each in job.reports] == [0, 1]


@pytest.mark.one_tensorflow
def test_a_script_that_is_not_there():
    job = run_job(2, "no_such_script.py", options=STRATEGY)
    assert job.exit_code == 1, str(job)
    assert "tf_smddp.distribute: there is no script 'no_such_script.py'" in job.output, str(job)
    assert "Traceback" not in job.output


@pytest.mark.one_tensorflow
def test_a_tensorflow_with_other_names_is_refused():
    job = run_job(
        1,
        """
from tf_smddp.distribute import Strategy, _extended
_extended.Extended._of_another_tensorflow = None
Strategy()
""",
    )
    assert job.exit_code == 1, str(job)
    assert "tf_smddp.distribute does not work with TensorFlow" in job.output, str(job)
    assert "has no CollectiveAllReduceExtended._of_another_tensorflow." in job.output, str(job)
