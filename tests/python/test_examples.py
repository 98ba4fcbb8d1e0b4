"""The examples: each trains with two ranks, and prints what it has reached."""

import importlib.util
import re

import pytest
from harness import ROOT, run_job

EXAMPLES = ROOT / "examples"
ACCURACY = r"test accuracy  (\d+\.\d+)%"
# By name: the line with the result, and whether it is good enough. The accuracies are far from chance, 10 %,
# and a little below those that were seen.
RESULTS = {
    "keras_fit": (ACCURACY, lambda percent: percent > 92),
    "xla": (ACCURACY, lambda percent: percent > 92),
    "mixed_precision": (ACCURACY, lambda percent: percent > 92),
    "gan": (r"distance       (\d+\.\d+) of", lambda distance: distance < 0.2),
    "embeddings": (ACCURACY, lambda percent: percent > 80),
    "uneven_data": (ACCURACY, lambda percent: percent > 92),
    "tfrecords": (ACCURACY, lambda percent: percent > 92),
    "v1_session": (ACCURACY, lambda percent: percent > 92),
    "estimator": (ACCURACY, lambda percent: percent > 92),
}
# Each takes 5 to 10 s on two cores, most of it for the start of TensorFlow. `make test` runs one of them, and
# digits.py in test_process.py.
SOME = ("keras_fit",)


def marks(name):
    # Estimators are in TensorFlow as long as Keras 2.
    has = (
        (pytest.mark.long, name not in SOME),
        (pytest.mark.keras(2), name == "estimator"),
    )
    return [mark for mark, it_has in has if it_has]


def check(job, name, ranks=2):
    assert job.exit_code == 0, str(job)
    pattern, good = RESULTS[name]
    (result,) = re.findall(pattern, job.output)
    assert good(float(result)), str(job)
    assert f"ranks          {ranks}\n" in job.output, str(job)
    assert "weights        equal to the bit on all ranks" in job.output, str(job)
    assert re.search(r"training time  \d+\.\d s, \d+ images/s", job.output), str(job)
    assert re.search(r"(epoch 10/10|step 400/400): ", job.output), str(job)


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in RESULTS])
def test_two_ranks(name):
    check(run_job(2, str(EXAMPLES / f"{name}.py")), name)


@pytest.mark.long
@pytest.mark.parametrize("options", [None, ["--strategy"]])
def test_a_script_of_tf_distribute(options):
    job = run_job(
        2, str(EXAMPLES / "mirrored_strategy.py"), launcher=options is not None, options=options or ()
    )
    assert job.exit_code == 0, str(job)
    accuracies = re.findall(ACCURACY, job.output)
    assert len(set(accuracies)) == 1 and float(accuracies[0]) > 92, str(job)
    assert len(accuracies) == (1 if options is None else 2), str(job)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in RESULTS if name != "estimator"])
def test_one_rank(name):
    check(run_job(1, str(EXAMPLES / f"{name}.py"), launcher=False), name, ranks=1)


@pytest.mark.long
def test_parameter_servers():
    path = str(EXAMPLES / "parameter_servers.py")
    job = run_job(2, path, options=["--ps", "1"])
    assert job.exit_code == 0, str(job)
    assert float(re.findall(ACCURACY, job.output)[0]) > 92, str(job)
    assert "workers        2\n" in job.output and "epoch 10/10: " in job.output, str(job)
    alone = run_job(1, path, launcher=False)
    assert alone.exit_code == 1 and "There is no parameter server; run: smddprun --ps" in alone.output, str(
        alone
    )


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_checkpoint_goes_on_after_a_failure(tmp_path):
    arguments = ["--checkpoint-dir", str(tmp_path), "--fail-at", "100"]
    job = run_job(2, str(EXAMPLES / "checkpoint.py"), *arguments, options=["--max-restarts", "1"])
    assert job.exit_code == 0, str(job)
    assert re.findall(r"begins at step (\d+) of 220", job.output) == ["0", "80"], str(job)
    assert "step 100 fails, as --fail-at asks" in job.output, str(job)
    assert float(re.findall(ACCURACY, job.output)[0]) > 92, str(job)
    assert "equal to the bit on all ranks" in job.output, str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_a_short_run_of_digits_is_no_failure():
    job = run_job(2, str(EXAMPLES / "digits.py"), "--epochs", "1")
    assert job.exit_code == 0, str(job)
    assert "20 epochs reach 97%; this run had 1." in job.output, str(job)


@pytest.mark.long
@pytest.mark.keras(2)  # Keras's own callback needs TensorBoard, which TensorFlow 2.15 brings along
def test_keras_fit_writes_for_tensorboard(tmp_path):
    job = run_job(2, str(EXAMPLES / "keras_fit.py"), "--epochs", "2", "--log-dir", str(tmp_path))
    assert job.exit_code == 0, str(job)
    assert list(tmp_path.glob("*.smddp")) and list(tmp_path.glob("train/events*")), str(job)


def test_every_example_is_in_the_list():
    listed = set(re.findall(r"^\| `([^`]+)`", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    files = (path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc")
    there = {str(path.relative_to(EXAMPLES)) for path in files} - {"README.md"}
    assert listed == there


@pytest.mark.one_tensorflow
def test_what_the_sagemaker_job_asks_for():
    """The settings are those with which launchers/test_sagemaker.py starts SageMaker's toolkit."""
    spec = importlib.util.spec_from_file_location("sagemaker_job", EXAMPLES / "sagemaker_job.py")
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    words = ["--image", "an-image", "--role", "a-role", "--ranks-per-instance", "2", "epochs=3"]
    asked = job.estimator_arguments(job.parse_arguments(words))
    assert asked["distribution"] == {"smdistributed": {"dataparallel": {"enabled": True}}}
    assert asked["hyperparameters"] == {"epochs": "3", "sagemaker_mpi_num_of_processes_per_host": 2}
    assert (ROOT / asked["source_dir"] / asked["entry_point"]).exists()
    with pytest.raises(SystemExit):
        job.parse_arguments([*words, "epochs"])
