"""Each Python block of README.md and of pages in docs/ compiles, and those that are programs run.

A program is a block that begins with an import, imports one of our packages, and calls `init` or `Strategy`.
It runs as it stands, with two ranks, in an empty folder. All ranks must end well, and none may warn of what a
reader should not do. The other blocks are parts of scripts or programs for other libraries. Some run behind
lines that they need, and test_docs.py runs the rest.
"""

import importlib.util
import re

import pytest
import test_docs
from harness import ROOT, RunningJob

# tests/torch runs those of pytorch.md.
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "pytorch.md"})]
# These run in each test run; the others in `make test-all`.
SHORT = {"README.md 1", "quickstart.md 3"}
# Estimators are in TensorFlow up to 2.15, which has Keras 2.
KERAS_2 = {"quickstart.md 4"}
# Keras's own program, for one process.
ALONE = "quickstart.md 2"
# An estimator without a `model_dir` makes one among the temporary files, and leaves it there.
LEAVES_FILES = KERAS_2
# Horovod's program runs on the layer that has its names.
HOROVOD = "moving.md 3"
# MultiWorkerMirroredStrategy's runs as it is.
STRATEGY = "moving.md 5"
# TensorFlow's own, without us, and a line for it.
LOST_ORDER, KEPT_ORDER = "lost-order.md 1", "lost-order.md 2"
# A part of a script, behind what the script has before it.
AFTER_INIT = "quickstart.md 5"
# torch's program, which tests/torch runs.
NOT_RUN = {"moving.md 6"}


def blocks():
    """Returns the blocks, by page and number from 1."""
    found = {}
    for page in PAGES:
        texts = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        found.update({f"{page.name} {number}": text for number, text in enumerate(texts, 1)})
    return found


BLOCKS = blocks()
PROGRAMS = [name for name, text in BLOCKS.items() if test_docs.is_program(text)]


def marks(name):
    has = (
        (pytest.mark.long, name not in SHORT),
        (pytest.mark.keras(2), name in KERAS_2),
    )
    return [mark for mark, it_has in has if it_has]


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("name", BLOCKS)
def test_block_compiles(name):
    compile(BLOCKS[name], name, "exec")


@pytest.mark.one_tensorflow
def test_the_lists_name_programs():
    assert set(PROGRAMS) >= SHORT | KERAS_2
    assert len(PROGRAMS) > 8


@pytest.mark.one_tensorflow
def test_each_block_runs():
    """A block that is new and no program fails here: it belongs to one of these."""
    pages = (*test_docs.PAGES, "watching.md")
    in_test_docs = {name for name in BLOCKS if name.split()[0] in pages and name not in PROGRAMS}
    others = {HOROVOD, STRATEGY, LOST_ORDER, KEPT_ORDER, AFTER_INIT, ALONE} | NOT_RUN
    assert not others & (in_test_docs | set(PROGRAMS))
    assert set(BLOCKS) == in_test_docs | set(PROGRAMS) | others


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in PROGRAMS])
def test_program_runs(name, tmp_path):
    run(name, BLOCKS[name], tmp_path)


@pytest.mark.long
def test_the_program_for_one_process_runs(tmp_path):
    run(ALONE, BLOCKS[ALONE], tmp_path, 1)


@pytest.mark.long
def test_horovods_program_runs(tmp_path):
    text = BLOCKS[HOROVOD]
    ours = text.replace("import horovod.", "import tf_smddp.horovod.")
    assert ours != text
    run(HOROVOD, ours + "assert hvd.size() == 2 and float(total) == 1.0, total\n", tmp_path)


@pytest.mark.long
def test_the_strategys_program_runs(tmp_path):
    check = "assert strategy.num_replicas_in_sync == 2\n"
    run(STRATEGY, BLOCKS[STRATEGY] + check, tmp_path, options=["--strategy"])


@pytest.mark.long
def test_the_line_for_lost_order_helps(tmp_path):
    lines = BLOCKS[LOST_ORDER].split("\n\n", 1)
    run(LOST_ORDER, f"{lines[0]}\n{BLOCKS[KEPT_ORDER]}\n{lines[1]}\nassert wrong == 0\n", tmp_path)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_the_part_for_gpus_runs(tmp_path):
    before = "import tensorflow as tf\nimport tf_smddp as sdp\nsdp.init()\n"
    run(AFTER_INIT, before + BLOCKS[AFTER_INIT], tmp_path)


def run(name, text, tmp_path, ranks=2, options=()):
    """Runs a program, whose ranks must end well, leave nothing, and warn of nothing."""
    if importlib.util.find_spec("tensorboard") is None:  # TensorFlow 2.21 does not install it
        text = text.replace('TensorBoard("logs")', 'CSVLogger("log.csv")')
    script = tmp_path / "train.py"
    script.write_text(text)
    with RunningJob(ranks, str(script), options=options) as running:
        job = running.finish()
    assert job.exit_code == 0, str(job)
    left = [each for each in job.leftovers if not (name in LEAVES_FILES and each.startswith("file "))]
    assert not left, str(job)
    assert "[tf_smddp rank" not in job.output, str(job)
    warned = re.findall(r"tf_smddp/\S+: UserWarning: .*", job.output)
    assert not warned, str(job)
