"""Runs Horovod's own test files through tf_smddp.horovod: horovod_suite.py CHECKOUT [--np 2 3].

By hand, since it needs a checkout of github.com/horovod/horovod, and the packages parameterized, mock and
cloudpickle. The files run as they are, with modules named `horovod...` that are this layer's. A test that
fails must be in horovod_suite.toml, with its reason; the exit code is 1 if anything else fails, or if
something that is listed there does not fail.
"""

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from typing import Dict, Optional, Set

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

HERE = pathlib.Path(__file__).resolve().parent
RUNNER = HERE.parents[1] / "tools" / "spmd_pytest.py"
KNOWN = HERE / "horovod_suite.toml"
FILES = (
    "test_tensorflow.py",
    "test_tensorflow2_keras.py",
    "test_tensorflow_keras.py",
    "test_tensorflow_process_sets.py",
    "test_tensorflow2_keras_process_sets.py",
    "test_tensorflow_process_sets_dynamic.py",
    "test_adasum_tensorflow.py",
)
LIMIT_S = 1200  # for a file

# Names that the tests import from other modules of Horovod, and that say nothing about collectives. After
# each test all ranks meet, so that a test that fails on one rank alone does not shift the next ones.
CONFTEST = """
import os
import sys
import threading
import types

import packaging.version
import pytest
import tensorflow
import tf_smddp.horovod.tensorflow as hvd
import tf_smddp.horovod.tensorflow.keras as hvd_keras


def module(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
    vars(sys.modules[name]).update(names)


def is_version_greater_equal_than(found, wanted):
    return packaging.version.parse(found) >= packaging.version.parse(wanted)


def in_thread(target, args=()):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def get_env_rank_and_size():
    return int(os.environ["SMDDP_RANK"]), int(os.environ["SMDDP_SIZE"])


module("horovod", tensorflow=hvd, keras=hvd_keras)
sys.modules["horovod.tensorflow"] = hvd
sys.modules["horovod.tensorflow.keras"] = sys.modules["horovod.keras"] = hvd_keras
module("horovod.tensorflow.util", _executing_eagerly=tensorflow.executing_eagerly)
hvd.util, hvd._executing_eagerly = sys.modules["horovod.tensorflow.util"], tensorflow.executing_eagerly
module("horovod.common")
module("horovod.common.util", is_version_greater_equal_than=is_version_greater_equal_than)
module("horovod.runner")
module("horovod.runner.util")
module("horovod.runner.util.threads", in_thread=in_thread)
module("horovod.runner.common")
module("horovod.runner.common.util")
module("horovod.runner.common.util.env", get_env_rank_and_size=get_env_rank_and_size)


@pytest.fixture(autouse=True)
def meet():
    yield
    if hvd.is_initialized():
        hvd.join()
"""


def run(checkout: pathlib.Path, name: str, ranks: int, keep: Optional[pathlib.Path]) -> Dict[str, str]:
    """Runs a file; returns the outcome of each test: "passed", "failed" or "skipped"."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for each in ("parallel", "utils"):  # its tests look for ../utils
            shutil.copytree(checkout / "test" / each, folder / each)
        tests = folder / "parallel"
        (tests / "conftest.py").write_text(CONFTEST)
        launcher = pathlib.Path(sys.executable).parent / "smddprun"
        command = [str(launcher), "-np", str(ranks), sys.executable, str(RUNNER)]
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tests), str(tests / name)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        with open(folder / "log", "wb") as log:
            done = subprocess.run(
                [*command, str(folder), *options],
                cwd=tests,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        outcomes: Dict[str, str] = {}
        for rank in range(ranks):
            report = folder / f"rank-{rank}.xml"
            if not report.exists():
                raise RuntimeError(f"{name} left no report (code {done.returncode}):\n{tail(folder / 'log')}")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(report, keep / f"{name}-{ranks}-{rank}.xml")
            for case in ElementTree.parse(report).iter("testcase"):
                found = {child.tag for child in case}
                outcome = "failed" if found & {"failure", "error"} else "skipped" if found else "passed"
                test = str(case.get("name"))
                if outcomes.get(test) != "failed":
                    outcomes[test] = outcome
        return outcomes


def tail(path: pathlib.Path) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-40:])


def main() -> int:
    """Returns 0 if what fails is what is known to."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--np", type=int, nargs="+", default=[2, 3], help="numbers of ranks")
    parser.add_argument("--files", nargs="+", default=FILES)
    parser.add_argument(
        "--keep", type=pathlib.Path, help="a new folder, which keeps the reports of the ranks"
    )
    arguments = parser.parse_args()
    known = tomllib.loads(KNOWN.read_text())
    wrong = 0
    for name in arguments.files:
        for ranks in arguments.np:
            outcomes = run(arguments.checkout, name, ranks, arguments.keep)
            failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
            expected: Set[str] = set()
            for group in known.get("known", []):
                if group["file"] == name and ranks in group.get("ranks", [ranks]):
                    expected |= set(group["tests"])
            counts = collections.Counter(outcomes.values())
            print(
                f"{name}, {ranks} ranks: {counts['passed']} passed, {counts['failed']} failed, "
                f"{counts['skipped']} skipped",
                flush=True,
            )
            for text, tests in (("fails", failed - expected), ("is listed, and passes", expected - failed)):
                for test in sorted(tests):
                    print(f"  {test} {text}", flush=True)
                    wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
