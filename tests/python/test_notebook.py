"""examples/notebook.ipynb runs in a kernel, and its cells show what the ranks have printed."""

import sys

import nbformat
import pytest
from harness import ROOT
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

LIMIT_SECONDS = 180


class ThisPython(AsyncKernelManager):
    """A kernel of the Python that runs the tests, whatever kernels are installed."""

    @property
    def kernel_spec(self):
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="this Python", language="python")


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_the_notebook(tmp_path):
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "clear its outputs"
    # The kernel's folder is an empty one, since the source tree has no compiled library.
    resources = {"metadata": {"path": str(tmp_path)}}
    manager = ThisPython()
    NotebookClient(notebook, km=manager, timeout=LIMIT_SECONDS, resources=resources).execute()
    shown = [
        "".join(output.get("text", output.get("data", {}).get("text/plain", "")) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    hello, training, result, error = shown
    for rank in range(2):
        assert f"[{rank}] hello of rank {rank} of 2\n" in hello
    assert hello.endswith("[0, 1]")
    assert "[0] Epoch 5/5" in training
    assert "weights equal: True" in result
    assert float(result.split()[2].rstrip("%,")) > 80
    assert "tf_smddp.run(): rank 1 has raised ValueError: this rank has no data\n" in error
