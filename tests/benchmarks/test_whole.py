"""The tables of whole training, and the busy loop beside it. Standard library only."""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import pytest
from driver.busy import busy_loop
from driver.report import BEGIN, END, WHOLE_BEGIN, WHOLE_END, update
from training import whole
from training.blocks import BLOCKS, WARM_UP_STEPS
from training.inputs import MODELS, check_size
from workloads.options import read_shapes

ABOUT = dict.fromkeys(("date", "processor", "cores", "memory", "system", "compiler", "commit", "load"), "?")


def record(way, seconds, model="mlp", where="here", voluntary=1.0, involuntary=0.0):
    return {
        "whole": model,
        "where": where,
        "way": way,
        "images": 64,
        "seconds": seconds,
        "software": way.split()[0],
        "voluntary": voluntary,
        "involuntary": involuntary,
    }


def rows(text, title):
    """The cells of the table below a line that begins with `title`, by the first cell of a row."""
    lines = text[text.index(title) :].split("\n")[2:]
    table = lines[: lines.index("")] if "" in lines else lines
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {cells[0]: cells[1:] for cells in split}


def test_the_times_of_a_way_are_those_of_all_its_jobs():
    text = whole.text(
        [record("tf_smddp", [0.1, 0.4]), record("tf_smddp", [0.2]), record("one process", [0.1])]
    )
    found = rows(text, "Images or texts a second")
    assert found[""] == ["mlp, 64 a step"]
    assert found["tf_smddp"] == ["320/s, 200 ms"]
    assert found["one process"] == ["640/s, 100 ms (0.50×)"]


def test_ranks_are_compared_with_one_process_of_their_framework():
    records = [record("one process", [1.0]), record("tf_smddp", [2.0])]
    records += [record("torch, one process", [4.0]), record("torch DDP, Gloo", [12.0])]
    found = rows(whole.text(records), "The time of a step of the ranks")
    assert found["tf_smddp"] == ["2.00×"]
    assert found["torch DDP, Gloo"] == ["3.00×"]
    assert "one process" not in found and "torch, one process" not in found


def test_sparse_ranks_of_torch_are_compared_with_a_sparse_process():
    records = [record("torch, one process", [4.0]), record("torch, one process, `sparse=True`", [2.0])]
    records += [record("torch DDP, Gloo, `sparse=True`", [12.0]), record("one process", [1.0])]
    records += [record("tf_smddp, `sparse_as_dense=False`", [1.5])]
    found = rows(whole.text(records), "The time of a step of the ranks")
    assert found["torch DDP, Gloo, `sparse=True`"] == ["6.00×"]
    # TensorFlow has one kind of process: its gradients are sparse by themselves.
    assert found["tf_smddp, `sparse_as_dense=False`"] == ["1.50×"]


def test_a_model_that_a_way_does_not_train_has_a_dash():
    records = [record("tf_smddp", [1.0]), record("tf_smddp", [1.0], model="digits")]
    records.append(record("one process", [1.0], model="digits"))
    found = rows(whole.text(records), "Images or texts a second")
    assert found[""] == ["mlp, 64 a step", "digits, 64 a step"]
    assert found["one process"] == ["–", "64/s, 1 s (1.00×)"]


def test_context_switches():
    records = [record("tf_smddp", [1.0], voluntary=count, involuntary=0.25) for count in (1, 1234, 5000)]
    assert rows(whole.text(records), "Context switches")["tf_smddp"] == ["1,234 + 0.2"]


def test_beside_a_busy_loop_each_way_is_compared_with_itself():
    title, busy = "How many times as long", "here" + whole.BUSY
    undisturbed = [record("tf_smddp", [1.0]), record("one process", [2.0])]
    disturbed = [record("tf_smddp", [3.0], where=busy), record("one process", [3.0], where=busy)]
    found = rows(whole.text(undisturbed + disturbed), title)
    assert found["tf_smddp"] == ["3.00×"] and found["one process"] == ["1.50×"]
    assert title not in whole.text(undisturbed) and title not in whole.text(disturbed)


def test_what_failed_is_named():
    failed = {"whole": "mlp", "where": "here", "way": "Horovod, MPI", "title": "whole mlp, Horovod, MPI"}
    text = whole.text([record("tf_smddp", [1.0]), {**failed, "error": "exit code 3", "ours": False}])
    assert "Failed: whole mlp, Horovod, MPI: exit code 3." in text


def line(rank, ranks, **others):
    return {"rank": rank, "ranks": ranks, "voluntary": 2.0, "involuntary": 0.5, "software": "s", **others}


def test_a_job_is_measured_only_if_its_ranks_were_joined():
    assert whole._missing([line(1, 2), line(0, 2)], 2) == ""
    assert "(0, 1), (0, 1)" in whole._missing([line(0, 1), line(0, 1)], 2)
    assert "[(0, 2)]" in whole._missing([line(0, 2)], 2)
    assert whole._missing([], 1)


def test_a_job_has_the_times_of_rank_0_and_the_switches_of_all():
    lines = [line(1, 2, seconds=[9.0]), line(0, 2, seconds=[1.0])]
    expected = {"seconds": [1.0], "software": "s", "voluntary": 4.0, "involuntary": 1.0}
    assert whole._figures(lines) == expected


def test_each_way_has_a_name_and_a_title_of_its_own():
    for values in ({way.name for way in whole.WAYS}, {way.title for way in whole.WAYS}):
        assert len(values) == len(whole.WAYS)


def test_both_frameworks_must_have_the_same_weights():
    shapes = read_shapes("keras_resnet50")
    check_size("resnet50", shapes)
    with pytest.raises(AssertionError, match="resnet50"):
        check_size("resnet50", [*shapes, [0]])  # as many weights in more tensors
    with pytest.raises(AssertionError, match="resnet50"):
        check_size("resnet50", [*shapes[1:], [1]])
    assert set(whole.SIZES) <= set(MODELS)


WORKER = """
import time
from training.blocks import measure, parse_arguments
steps = []
def train(number):
    steps.append(number)
    # The warm-up sleeps more often.
    for _ in range(number if len(steps) > 1 else 50 * number):
        time.sleep(0.001)
    return LOSS
measure(train, parse_arguments(["way"]), 3, 4, "software")
print(sum(steps))
"""


def run_worker(output, loss):
    benchmarks = pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks"
    words = ["way", "--model=m", "--batch-size=1", "--steps=7", "--threads=1", f"--output={output}"]
    return subprocess.run(
        [sys.executable, "-c", WORKER.replace("LOSS", loss), *words],
        env={**os.environ, "PYTHONPATH": str(benchmarks)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_worker_counts_the_switches_of_a_step_without_those_of_the_warm_up(tmp_path):
    output = tmp_path / "lines"
    output.write_text("a line of another rank\n")
    done = run_worker(output, "1.0")
    assert int(done.stdout) == WARM_UP_STEPS + BLOCKS * 7, done.stderr
    other, own = output.read_text().splitlines()
    found = json.loads(own)
    assert other == "a line of another rank"
    assert (found["rank"], found["ranks"], found["software"]) == (3, 4, "software")
    assert len(found["seconds"]) == BLOCKS and all(seconds > 0.001 for seconds in found["seconds"])
    # Each step sleeps once.
    assert 1 <= found["voluntary"] < 1.5


def test_a_loss_that_is_no_number_fails(tmp_path):
    done = run_worker(tmp_path / "lines", "float('nan')")
    assert done.returncode and "not a number" in done.stderr
    assert not (tmp_path / "lines").exists()


def test_the_busy_loop_takes_a_core_and_ends():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with busy_loop():
        time.sleep(1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # On a machine with other work it gets its share only.
    assert after.ru_utime - before.ru_utime > 0.05


def test_the_busy_loop_ends_with_its_parent():
    code = "import os; from driver import busy; loop = busy.busy_loop(); loop.__enter__(); os._exit(0)"
    benchmarks = pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks"
    # The loop has its parent's standard output: the pipe is closed when both have ended.
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(benchmarks)},
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0


def test_whole_training_has_a_section_of_its_own():
    document = f"a\n{WHOLE_BEGIN}\nold\n{WHOLE_END}\nb\n{BEGIN}\nearlier\n{END}\nc\n"
    records = [{"about": ABOUT, "versions": {}}, record("tf_smddp", [1.0])]
    text = update(document, [], records)
    assert f"{BEGIN}\nearlier\n{END}\nc\n" in text and "old" not in text
    assert "Versions: tf_smddp.\n\n### Whole training, here" in text
    again = update(text, ["new"], [records[0]])
    assert "### Whole training, here" in again and "earlier" not in again
    with pytest.raises(ValueError, match="whole training"):
        update(f"{BEGIN}\n{END}\n", [], records)
