"""The tests of torch_smddp: jobs that tests start, in an environment with PyTorch and without TensorFlow."""

import functools
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python" / "launchers"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import harness

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"


def torchrun(num_ranks):
    """Returns the words that start a command on so many ranks."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    return [*words, "--nproc-per-node", str(num_ranks)]


@pytest.fixture(scope="session")
def run_job():
    """Runs a script that imports torch, torch.distributed as dist and torch_smddp; see harness.run_job."""
    return functools.partial(harness.run_job, preamble=harness.TORCH)


@pytest.fixture(params=["smddprun", "torchrun"])
def run_script(request):
    """Runs a file of scripts/ on so many ranks, under each launcher; fails if it does."""

    def run(num_ranks, name, *arguments):
        launcher = torchrun(num_ranks) if request.param == "torchrun" else True
        job = harness.run_job(num_ranks, str(SCRIPTS / name), *map(str, arguments), launcher=launcher)
        assert job.exit_code == 0, str(job)
        return job

    return run
