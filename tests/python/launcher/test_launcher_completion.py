"""The completions of bash after `eval "$(smddprun --completion)"`."""

import subprocess
import sys

import pytest

from smddprun import options

COMPLETE = """
eval "$("$1" -m smddprun --completion)"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_smddprun
printf '%s\n' "${COMPREPLY[@]}"
"""


def completed(*words):
    shell = ["bash", "-euc", COMPLETE, "bash", sys.executable, "smddprun", *words]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.split()


def test_an_option():
    assert completed("--thr") == ["--threads-per-rank"]
    assert set(completed("-")) == set(options.words())
    assert completed("-np", "2", "--ver") == ["--verbose", "--version"]


@pytest.mark.parametrize(
    "words",
    [["-np", "-"], ["train.py", "-"], ["-np", "2", "train.py", "--"], ["-m", "-"], ["--", "-"], ["tr"]],
)
def test_bash_completes_values_and_the_words_of_the_command(words):
    assert completed(*words) == []
