"""The engine says which libraries of others it finds; `smddprun --check` shows it."""

import pytest
from harness import run_job

pytestmark = pytest.mark.one_tensorflow

# One process for all: NCCL is opened once.
SCRIPT = """
from smddp import found_libraries

os.environ["SMDDP_NCCL_LIBRARY"] = "/nowhere/libnccl.so.2"
os.environ["SMDDP_MPI_LIBRARY"] = "/nowhere/libmpi.so"
report("found", found_libraries())
os.environ["SMDDP_MPI_LIBRARY"] = sys.argv[1]
report("not a library of MPI", found_libraries()["MPI library"])
os.environ["SMDDP_STALL_WARNING"] = "often"
try:
    found_libraries()
except RuntimeError as error:
    report("refused", str(error))
report("initialized", sdp.is_initialized())
"""


def test_what_is_missing_is_said(tmp_path):
    other = tmp_path / "libmpi.so"
    other.write_text("no library")
    job = run_job(1, SCRIPT, str(other))
    assert job.exit_code == 0, str(job)
    (said,) = job.reports
    assert sorted(said["found"]) == ["CUDA driver", "MPI library", "NCCL"], str(job)
    there, text = said["found"]["MPI library"]
    assert not there and text.startswith("no MPI library can be opened: /nowhere/libmpi.so: "), str(job)
    assert "set SMDDP_MPI_LIBRARY" in text, str(job)
    there, text = said["found"]["NCCL"]  # this machine may have one that the system finds
    assert there or "/nowhere/libnccl.so.2" in text, str(job)
    there, text = said["not a library of MPI"]
    assert not there and str(other) in text, str(job)
    assert "SMDDP_STALL_WARNING='often'" in said["refused"], str(job)
    assert said["initialized"] is False, str(job)
