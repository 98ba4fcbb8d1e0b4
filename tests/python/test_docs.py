"""The Python examples of the documents run, one after the other, and return what their comments say."""

import ast
import re

import pytest
from harness import ROOT, run_job

# The pages whose examples go on from each other. Those that are whole programs are in test_snippets.py.
PAGES = ("devices.md", "api.md", "keras.md", "xla.md", "troubleshooting.md")
# Names that the examples use but do not define.
BEFORE = """
sdp.init()
gradients = [tf.ones([2]), tf.ones([3])]
"""

AFTER = """
arrays = (everybody, numbers, mine, swapped, rows, counts, root, scaled)
report("arrays", [x.numpy().tolist() for x in arrays])
report("sums", [int(x) for x in sums])
report("reason", reason)
report("set", float(total) if ends.included() else None)
report("last", float(last))
report("gradient", gradient.numpy().tolist())
report("objects", [config, hosts, gathered])
report("normalization", type(converted.layers[-1]) is sdp.SyncBatchNormalization)
report("unchanged", unchanged.numpy().tolist())
report("fitted", [tf.convert_to_tensor(weight).numpy().tolist() for weight in model_for_fit.weights])
report("steps", int(adam.iterations))
"""


OURS = {"tf_smddp", "smdistributed"}


def python_blocks(document):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
    return [block for block in blocks if not is_program(block)]


def is_program(text):
    """Returns whether a block begins with imports, one of them of ours, and calls `init` or `Strategy`."""
    statements = ast.parse(text).body
    if not isinstance(statements[0], (ast.Import, ast.ImportFrom)):
        return False
    imported = set()
    for statement in statements:
        if isinstance(statement, ast.Import):
            imported |= {name.name.split(".")[0] for name in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            imported.add(statement.module.split(".")[0])
    called = {node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
    names = {getattr(function, "attr", getattr(function, "id", "")) for function in called}
    return bool(imported & OURS) and bool(names & {"init", "Strategy"})


@pytest.mark.one_tensorflow
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 2])
def test_api(size):
    blocks = [block for page in PAGES for block in python_blocks(page)]
    assert len(blocks) > 15
    job = run_job(size, BEFORE + "".join(blocks) + AFTER)
    assert job.exit_code == 0, str(job)
    for rank, report in enumerate(job.reports):
        assert report["arrays"] == [
            [[r, 1.0] for r in range(size)],
            list(range(size)),
            [[1.0] * 3] * 2,
            list(range(size)),
            [1.0] * (3 * size if rank == 0 else 0),
            [3 if rank == 0 else 0] * size,
            [[0.0, 1.0]],
            [[sum(range(size)) / size / 2, 0.5]],
        ], str(job)
        assert report["sums"] == [0, size, 2 * size], str(job)
        assert "the disk is full" in report["reason"], str(job)
        if rank > 0:
            assert "rank 0" in report["reason"], str(job)
            assert "failed with INVALID_ARGUMENT" in report["reason"], str(job)
        assert report["set"] == sum(range(size)), str(job)
        assert report["last"] == 2.0, str(job)
        assert report["fitted"] == job.reports[0]["fitted"], str(job)
        assert report["steps"] == 2, str(job)
        assert report["gradient"] == [[2.0 * size * rank, 2.0 * size]], str(job)
        assert report["objects"] == [
            {"seed": 1234},
            [[r, "a-host"] for r in range(size)],
            [{"images": 100 + r} for r in range(size)] if rank == 0 else None,
        ], str(job)
        assert report["normalization"] is True, str(job)
        assert report["unchanged"] == [[2.0 * rank, 2.0]], str(job)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_watching():
    files = """
import json
loss = json.load(open(f"timeline.rank{sdp.rank()}.json"))
report("calls", allreduce["calls"])
report("losses", sum(event["name"] == "loss/0" for event in loss))
"""
    job = run_job(2, "sdp.init()\nsdp.allreduce(1.0, 0, 1)\n" + "".join(python_blocks("watching.md")) + files)
    assert job.exit_code == 0, str(job)
    assert job.reports == [{"calls": 1, "losses": 6}] * 2, str(job)
