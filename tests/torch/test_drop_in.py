"""SMDDP's two APIs for PyTorch, as its guide shows them: whole scripts with its imports."""

import mpi_launchers
import pytest
import torch
from conftest import SCRIPTS
from harness import run_job


def weights(folder, name, num_ranks):
    """Returns what each rank has saved."""
    return [torch.load(folder / f"{name}-{rank}.pt") for rank in range(num_ranks)]


def equal_weights(folder, name, num_ranks):
    """Returns what rank 0 has saved; the others must have the same, but for statistics of their own data."""
    first, *others = weights(folder, name, num_ranks)
    trained = [key for key in first if "running" not in key and "num_batches" not in key]
    for other in others:
        assert all(torch.equal(first[key], other[key]) for key in trained)
    return first


@pytest.fixture(scope="module")
def of_gloo(tmp_path_factory):
    """Returns the weights of the new style's script on Gloo, by the number of ranks."""
    text = (SCRIPTS / "new_style.py").read_text().replace('backend="smddp"', 'backend="gloo"')
    text = text.replace("op=dist.ReduceOp.AVG", "op=dist.ReduceOp.SUM")  # Gloo has no average
    found = {}

    def get(num_ranks):
        if num_ranks not in found:
            folder = tmp_path_factory.mktemp("gloo")
            (folder / "script.py").write_text(f"import sys\nsys.path.append({str(SCRIPTS)!r})\n{text}")
            job = run_job(num_ranks, str(folder / "script.py"), str(folder))
            assert job.exit_code == 0, str(job)
            found[num_ranks] = weights(folder, "new_style", num_ranks)[0]
        return found[num_ranks]

    return get


@pytest.mark.parametrize(
    "name, num_ranks",
    [
        ("old_style", 2),
        ("new_style", 3),
        pytest.param("old_style", 3, marks=pytest.mark.long),
        pytest.param("new_style", 2, marks=pytest.mark.long),
    ],
)
def test_the_guides_scripts(run_script, of_gloo, tmp_path, name, num_ranks):
    run_script(num_ranks, f"{name}.py", tmp_path)
    first = equal_weights(tmp_path, name, num_ranks)
    # With three ranks Gloo adds in another order.
    tolerance = 0 if num_ranks == 2 else 1e-4
    torch.testing.assert_close(first, of_gloo(num_ranks), rtol=tolerance, atol=tolerance)


def test_mpirun_sets_none_of_torchs_variables(tmp_path):
    script = str(SCRIPTS / "old_style.py")
    job = run_job(2, script, str(tmp_path), launcher=mpi_launchers.open_mpi("-np", "2"))
    assert job.exit_code == 0, str(job)
    equal_weights(tmp_path, "old_style", 2)
