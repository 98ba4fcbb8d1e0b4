"""DistributedDataParallel of torch_smddp: the functions of parallel_job.py, each a test, in one job."""

import json
import pathlib
import re

import harness
import pytest

JOB = pathlib.Path(__file__).resolve().parent / "parallel_job.py"
LIMIT_SECONDS = 400
# The functions of the job.
NAMES = re.findall(r"^@(?:same|ours)\ndef (\w+)", JOB.read_text(), re.MULTILINE)


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    """What each rank found, by its number."""
    folder = tmp_path_factory.mktemp("results")
    job = harness.run_job(request.param, str(JOB), str(folder), seconds=LIMIT_SECONDS)
    assert job.exit_code == 0, str(job)
    found = [json.loads((folder / f"results-{rank}").read_text()) for rank in range(request.param)]
    assert all(sorted(each) == sorted(NAMES) for each in found)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_parallel(results, name):
    for rank, found in enumerate(results):
        assert not found[name], f"rank {rank}:\n{found[name]}"


@pytest.mark.parametrize("compiler", ["/no/compiler", "false", "true"])
def test_a_machine_without_a_compiler(run_job, tmp_path, compiler):
    """A warning of one rank; the gradients are copied, and are the same."""
    script = f"""
import os, warnings
os.environ.update(CXX={compiler!r}, XDG_CACHE_HOME={str(tmp_path)!r})
dist.init_process_group("smddp")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = torch_smddp.DistributedDataParallel(torch.nn.Linear(100, 100))
    torch_smddp.DistributedDataParallel(torch.nn.Linear(100, 100))
model(torch.full((1, 100), 1.0 + dist.get_rank())).sum().backward()
report("warnings", [str(each.message) for each in caught])
report("gradient", model.module.weight.grad.unique().tolist())
"""
    job = run_job(2, script)
    assert job.exit_code == 0, str(job)
    first, second = (each["warnings"] for each in job.reports)
    assert len(first) == 1 and first[0].startswith("DistributedDataParallel copies gradients on a CPU"), first
    assert not second and [each["gradient"] for each in job.reports] == [[1.5], [1.5]]


@pytest.mark.long
def test_inductor(run_job):
    """torch.compile() as users call it, which compiles C++: the weights are those of an eager model."""
    script = """
from torch import nn

class Residual(nn.Module):  # Dynamo does not compile a Sequential that it meets first within torch's wrapper
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        return x + self.last(self.layers(x))

def train(model, compile_step=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = torch.compile(step) if compile_step else step
    for _ in range(4):
        step(torch.randn(2, 4, 6, 6, generator=generator))
    return torch.cat([each.detach().flatten() for each in model.parameters()])

torch.set_num_threads(1)
dist.init_process_group("smddp")
wraps = {"ours": torch_smddp.DistributedDataParallel, "torch's": nn.parallel.DistributedDataParallel}
for whose, wrap in wraps.items():
    eager = train(wrap(Residual()))
    ways = {
        "the module": lambda: train(wrap(torch.compile(Residual()))),
        "the wrapper": lambda: train(torch.compile(wrap(Residual()))),
        "the step": lambda: train(wrap(Residual()), compile_step=True),
    }
    for what, way in ways.items():
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        weights = way()
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
        torch.testing.assert_close(weights, eager)
        report(f"{whose}, {what}", weights.tolist())
dist.destroy_process_group()
"""
    job = run_job(2, script, seconds=500)
    assert job.exit_code == 0, str(job)
    first, second = job.reports
    assert len(first) == 6 and first == second


@pytest.mark.parametrize("seconds", [0, 1])
def test_an_uncaught_exception_in_the_backward_pass(run_job, seconds):
    """The job ends, with the traceback of the rank that has the cause, also where that ends as the last."""
    script = """
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if dist.get_rank() == 1:
            raise ValueError("on purpose")
        return gradient

dist.init_process_group("smddp")
hook = sys.excepthook
if dist.get_rank() == 1:
    sys.excepthook = lambda *error: (time.sleep(SECONDS), hook(*error))
first, last = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
model = torch.nn.Sequential(first, last)
model.forward = lambda x: last(Fails.apply(first(x)))
model = torch_smddp.DistributedDataParallel(model)
model(torch.ones(1, 2)).sum().backward()
"""
    job = run_job(2, f"SECONDS = {seconds}\n{script}")
    assert job.exit_code == 1, str(job)
    assert "ValueError: on purpose" in job.output, str(job)
    assert "rank 1 failed first" in job.output, str(job)
    assert "rank 0 error] stopped in script.py, line" in job.output, str(job)
