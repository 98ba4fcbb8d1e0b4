"""What `import torch` finds of torch_smddp, by the entry point of the installed package."""

import functools

import harness

run_alone = functools.partial(harness.run_job, 1, launcher=False, preamble="")

REGISTERED = """
import torch

assert "SMDDP" in torch.distributed.Backend._plugins
assert not {"smddp", "torch_smddp"} & set(sys.modules)
import torch_smddp

assert "tensorflow" not in sys.modules and "tf_smddp" not in sys.modules
"""
FIRST = "import torch_smddp; import torch; assert 'SMDDP' in torch.distributed.Backend._plugins"
BROKEN = """
os.mkdir("torch_smddp")
open("torch_smddp/__init__.py", "w").write("raise OSError('broken')")
import torch

try:
    torch.distributed.init_process_group("smddp", f"file://{os.getcwd()}/store", rank=0, world_size=1)
except OSError as error:
    assert str(error) == "broken"
else:
    raise AssertionError
"""


def test_the_backend_is_registered_and_nothing_else_is_imported():
    job = run_alone(REGISTERED)
    assert job.exit_code == 0, str(job)


def test_torch_smddp_may_be_imported_first():
    job = run_alone(FIRST)
    assert job.exit_code == 0, str(job)


def test_torch_can_be_imported_where_torch_smddp_cannot():
    job = run_alone(BROKEN)
    assert job.exit_code == 0, str(job)
