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


def test_all_names_are_listed_where_there_is_no_near_one():
    with pytest.warns(UserWarning, match="SMDDP_ZYX.* There are SMDDP_ARENA_BYTES, .*, SMDDP_TMPDIR"):
        settings.warn_about_unknown(["SMDDP_ZYX", "SMDDP_RANK", "HOME"])


def test_the_names_are_those_of_the_page():
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| (`SMDDP_[^|]*) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall("SMDDP_[A-Z_]+", row)} == settings.KNOWN
