"""A library built for another TensorFlow is refused before it is loaded, and a missing one is explained."""

import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from tf_smddp._base import op_library

RUNNING_MINOR = ".".join(tf.__version__.split(".")[:2])

# Another version is faked in a process of its own: this one has loaded the library already.
IMPORT_UNDER_ANOTHER_VERSION = """
import sys
import tensorflow as tf

tf.__version__ = sys.argv[1]
try:
    import tf_smddp
    print("imported")
except ImportError as error:
    print(error)
with open("/proc/self/maps") as maps:
    print("loaded" if "_smddp_ops.so" in maps.read() else "not loaded")
"""


def import_under(version: str, tmp_path: pathlib.Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_UNDER_ANOTHER_VERSION, version],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_another_minor_version_is_refused_before_loading(tmp_path):
    output = import_under("2.99.0", tmp_path)
    assert f"built against TensorFlow {RUNNING_MINOR}." in output
    assert "TensorFlow 2.99.0 is running" in output
    assert "pip install --force-reinstall" in output
    assert output.splitlines()[-1] == "not loaded"


@pytest.mark.one_tensorflow
def test_another_patch_version_is_accepted(tmp_path):
    assert import_under(f"{RUNNING_MINOR}.99", tmp_path).splitlines() == ["imported", "loaded"]


@pytest.mark.parametrize(
    ("built", "running"),
    [("2.15.1", "2.15.0"), ("2.15.0.post1", "2.15.1"), ("2.21.0", "2.21.0-rc1"), ("3.1.0", "3.1.2")],
)
def test_same_minor_version(built, running):
    op_library.check(built, running)


@pytest.mark.parametrize(
    ("built", "running"),
    [("2.15.1", "2.16.1"), ("2.2.0", "2.21.0"), ("2.21.0", "2.2.1"), ("2.15.1", "3.15.1")],
)
def test_other_minor_version_names_both(built, running):
    with pytest.raises(ImportError) as error:
        op_library.check(built, running)
    assert built in str(error.value)
    assert running in str(error.value)


def test_source_tree_without_library_is_explained(tmp_path):
    package = tmp_path / "tf_smddp"
    package.mkdir()
    (tmp_path / "setup.py").touch()
    with pytest.raises(ImportError, match=r"source tree.*pip install"):
        op_library.locate(package)


def test_incomplete_installation_is_explained(tmp_path):
    (tmp_path / "_smddp_ops.so").touch()
    with pytest.raises(ImportError, match=r"incomplete.*Reinstall"):
        op_library.locate(tmp_path)


@pytest.mark.one_tensorflow
def test_a_process_that_is_in_a_job_of_smddps_own_is_refused(tmp_path):
    script = "import smddp; smddp.init()\ntry: import tf_smddp\nexcept ImportError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"this process uses .*/smddp/libsmddp.so already, and cannot use .*/_smddp_ops.so as well: it would "
        r"be in two jobs. Import tf_smddp before other packages that use smddp, or before smddp.init\(\)\n",
        done.stdout,
    ), done.stdout


def test_library_is_loaded_once():
    ops, entry_points = op_library.load()
    assert op_library.load() == (ops, entry_points)
    assert hasattr(ops, "smddp_allreduce")
    assert hasattr(entry_points, "smddp_init")


def test_library_has_the_c_api():
    header = pathlib.Path(__file__).resolve().parents[2] / "kernels" / "process" / "smddp.h"
    names = re.findall(r"^[a-z][a-z_0-9 ]*[ *]+(smddp_[a-z_]+)\(", header.read_text(), re.MULTILINE)
    assert len(names) > 30
    entry_points = op_library.load()[1]
    assert [name for name in names if not hasattr(entry_points, name)] == []
