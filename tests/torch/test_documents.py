"""The programs of docs/pytorch.md, torch's one in docs/moving.md, and the example run as they stand."""

import re

import pytest
from conftest import torchrun
from harness import ROOT, run_job


def programs(page):
    """Returns the Python blocks of a page of docs/."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


PROGRAMS = [*programs("pytorch.md"), next(each for each in programs("moving.md") if "import torch\n" in each)]


# `make test` runs one under each launcher.
SHORT = (0, 1)


@pytest.mark.parametrize(
    "number",
    [*SHORT, *(pytest.param(number, marks=pytest.mark.long) for number in range(2, len(PROGRAMS)))],
)
def test_program(number, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAMS[number])
    launcher = torchrun(2) if number % 2 else True
    job = run_job(2, str(tmp_path / "train.py"), launcher=launcher)
    assert job.exit_code == 0 and "rror" not in job.output, str(job)


def test_the_example(tmp_path):
    arguments = ["--epochs", "2", "--checkpoint", str(tmp_path / "weights.pt")]
    job = run_job(2, str(ROOT / "examples" / "digits_torch.py"), *arguments)
    assert job.exit_code == 0, str(job)
    assert "weights        equal to the bit on all ranks" in job.output, str(job)
    assert "20 epochs reach 97%; this run had 2." in job.output, str(job)
    assert (tmp_path / "weights.pt").exists()


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--torch-ddp"]])
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_whole_example(num_ranks, options):
    job = run_job(num_ranks, str(ROOT / "examples" / "digits_torch.py"), *options)
    assert job.exit_code == 0, str(job)
    (accuracy,) = re.findall(r"test accuracy  (\d+\.\d+)%", job.output)
    assert float(accuracy) > 97, str(job)
