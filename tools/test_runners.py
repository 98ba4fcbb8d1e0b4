"""The runners of one row of the table: pytest, the SPMD suite under its launcher, or Bazel's tests."""

import os
import pathlib
import sys
import time
from typing import Dict, List, Optional, Sequence, Tuple

from test_process import ROOT, SHOWN_LINES, finish, open_log, result_folder, run
from test_results import Result, merge_ranks, read_bazel_events, read_junit

PYTHON_TESTS = ROOT / "tests" / "python"
# In the folder of a part's results: the tests that its marks and options left out.
LEFT_OUT = "left-out.txt"


def venv_python(version: str, kind: str = "tf") -> pathlib.Path:
    """Returns the Python of the environment with this TensorFlow; of kind "gpu", its build for GPUs."""
    return ROOT / ".venv" / f"{kind}-{version}" / "bin" / "python"


def venv_env(python: pathlib.Path) -> Dict[str, str]:
    """Returns the environment in which `python` and `smddprun` are those of the virtual environment."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    env.update(PATH=f"{python.parent}{os.pathsep}{env['PATH']}", VIRTUAL_ENV=str(python.parent.parent))
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return env


def pytest_options() -> List[str]:
    """Returns the options that name the project, since pytest does not start in it."""
    return ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]


def run_pytest(name: str, python: pathlib.Path, arguments: List[str], limit_s: int) -> Result:
    """One pytest process. It starts in an empty folder: in the root, `tf_smddp` would be the source tree."""
    log, start = open_log(name), time.monotonic()
    folder = result_folder(name)
    report = folder / "report.xml"
    code = run(
        [str(python), "-m", "pytest", *pytest_options(), f"--junitxml={report}", *arguments],
        log,
        limit_s,
        cwd=folder,
        env=venv_env(python),
    )
    return finish(name, read_junit(report) or {}, code, start, log)


def run_spmd(
    name: str,
    python: pathlib.Path,
    size: int,
    limit_s: int,
    options: Sequence[str],
    more_env: Optional[Dict[str, str]] = None,
    hosts: Optional[Tuple[str, str]] = None,
) -> Result:
    """The SPMD suite at one size, or what `options` of pytest select of it.

    `hosts`: an MPI and the ranks of each host, as tools/spmd_on_hosts.py takes them; None for one host.
    """
    log, start = open_log(name), time.monotonic()
    folder = result_folder(name)
    if hosts is None:
        launcher = [str(python.parent / "smddprun"), "-np", str(size)]
    else:
        launcher = [str(python), str(ROOT / "tools" / "spmd_on_hosts.py"), *hosts]
    code = run(
        [
            *launcher,
            str(python),
            str(ROOT / "tools" / "spmd_pytest.py"),
            str(folder),
            *pytest_options(),
            *options,
            f"--left-out={LEFT_OUT}",
            str(PYTHON_TESTS / "spmd"),
        ],
        log,
        limit_s,
        cwd=folder,
        env={**venv_env(python), **(more_env or {})},
    )
    report = merge_ranks([read_junit(folder / f"rank-{rank}.xml") for rank in range(size)])
    if code or any(case.outcome == "failed" for case in report.values()):
        add_rank_logs(folder, log)
    return finish(name, report, code, start, log)


def add_rank_logs(folder: pathlib.Path, log: pathlib.Path) -> None:
    """Adds the ends of what the ranks other than 0 wrote; a rank may have been killed at any point."""
    with open(log, "a") as out:
        for path in sorted(folder.glob("rank-*.log")):
            lines = path.read_text(errors="replace").splitlines()
            out.write(f"{path.name}, its last lines:\n" + "\n".join(lines[-SHOWN_LINES // 4 :]) + "\n")


def run_cpp(name: str, flags: List[str], limit_s: int) -> Result:
    """The C++ tests through Bazel. The cases of each GoogleTest program are counted."""
    log, start = open_log(name), time.monotonic()
    events = result_folder(name) / "events.json"
    command = [
        sys.executable,
        str(ROOT / "tools" / "run_bazel.py"),
        "test",
        "//tests/...",
        "--keep_going",
        "--noshow_progress",
        f"--build_event_json_file={events}",
        *flags,
    ]
    code = run(command, log, limit_s, cwd=ROOT)
    return finish(name, read_bazel_events(events), code, start, log)
