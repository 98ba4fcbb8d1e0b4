"""The rank that smddprun names when one fails, and how much a failure writes. See culprits.py."""

import re

import culprits
import pytest
from culprits import ALIKE, KINDS

# `make test` has one whose op fails on all ranks at once, one of which the launcher alone knows that it is a
# failure, and one without a culprit.
SHORT = ("step", "sys_exit", "disagreement")
# TensorFlow itself writes more of these than of others.
LONG_TEXTS = ("data", "exhausted", "step", "keras_callback", "in_init")
# TensorFlow's own lines when it starts, and its log of an error.
LOG_OF_TENSORFLOW = re.compile(r"\[\d\] ([IW]\d{4} |WARNING: All log messages|\d{4}-\d\d-\d\d )")


def marks(kind):
    """TensorFlow's version matters to the texts of errors that are its own."""
    here = [] if kind in SHORT else [pytest.mark.long]
    return here if kind in ("step", "disagreement") else [*here, pytest.mark.one_tensorflow]


CASES = [pytest.param(kind, marks=marks(kind)) for kind in [*KINDS, *ALIKE]]


@pytest.mark.parametrize("kind", CASES)
def test_the_rank_with_the_cause_is_named(kind):
    number = [*KINDS, *ALIKE].index(kind)
    ranks = 2 if kind in SHORT else 2 + number % 3
    wrong, output = culprits.run(kind, ranks, culprit=(number + 1) % ranks)
    assert not wrong, output
    stopped = re.findall(
        r"^\[(\d)\] \[tf_smddp rank \1 error\] stopped in script\.py, line \d+", output, re.M
    )
    tracebacks = set(re.findall(r"^\[(\d)\] Traceback", output, re.MULTILINE))
    if kind not in ("before_init", "in_init"):  # the others are ended in init()
        assert len(stopped) == ranks - 1, output
        assert len(tracebacks) <= 1 and not tracebacks & set(stopped), output
    written = [line for line in output.splitlines() if not LOG_OF_TENSORFLOW.match(line)]
    if kind not in LONG_TEXTS:
        assert len(written) <= 25, output
    if kind == "disagreement":  # once as an error, once in the report
        assert "\n".join(written).count("the ranks run different collectives") == 2, output
