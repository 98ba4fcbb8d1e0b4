"""Environment variables that begin as ours do."""

import pathlib
import re

import pytest
from harness import run_job

from smddp import settings

pytestmark = pytest.mark.one_tensorflow

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = """
os.environ["SMDDP_STALL_TIMOUT"] = "5"
os.environ["SMDDP_TEST_STRICT"] = "1"
sdp.init()
"""


def test_a_name_with_a_typing_error_is_a_warning_of_one_rank():
    job = run_job(2, JOB)
    assert job.exit_code == 0, str(job)
    text = "tf_smddp knows no environment variable SMDDP_STALL_TIMOUT, so it changes nothing. "
    assert str(job).count(f"{text}Did you mean SMDDP_STALL_TIMEOUT?") == 1, str(job)
    assert str(job).count("tf_smddp knows no environment variable") == 1, str(job)


@pytest.mark.long
def test_tf_config_is_a_warning_of_one_rank():
    job = run_job(2, 'os.environ["TF_CONFIG"] = "{}"\nsdp.init()\n')
    assert job.exit_code == 0, str(job)
    assert str(job).count("TF_CONFIG is set. tf_smddp does not read it") == 1, str(job)


@pytest.mark.parametrize("there, hidden, lines", [(8, False, 1), (8, True, 0), (0, False, 0)])
def test_gpus_that_tensorflow_does_not_see(there, hidden, lines):
    """They are a warning at the first collective, of one rank, unless the script has hidden them by then."""
    hide = 'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"' if hidden else ""
    files = f"[f'nvidia{{number}}' for number in range({there})]"
    job = run_job(
        2,
        f"""
from unittest import mock

sdp.init()
{hide}
with mock.patch("smddprun.gpus.os.listdir", lambda folder: {files}):
    for _ in range(2):
        sdp.allreduce(tf.constant(1.0), 0, 1)
""",
    )
    assert job.exit_code == 0, str(job)
    assert str(job).count("NVIDIA GPUs, and TensorFlow sees none") == lines, str(job)


def test_all_names_are_listed_where_there_is_no_near_one():
    with pytest.warns(UserWarning, match="SMDDP_ZYX.* There are SMDDP_ARENA_BYTES, .*, SMDDP_TMPDIR"):
        settings.warn_about_unknown(["SMDDP_ZYX", "SMDDP_RANK", "HOME"])


def test_the_names_are_those_of_the_page():
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| (`SMDDP_[^|]*) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall("SMDDP_[A-Z_]+", row)} == settings.KNOWN
