#!/usr/bin/env python3
"""Runs the parts of the test suite and counts what they did: tools/run_tests.py [--tf VERSION]... PART...

Parts: lint, layering, cpp, asan, tsan, model, python (once for each --tf), bench (some seconds of each
benchmark, to show that they work). `make` has set up what they need. Each part has a time limit, and a log
in .cache/logs that is shown when the part fails. The counts come from the reports that the tools write,
never from the text that they print; a part that ends without a report, or with an error that no report
explains, counts as one failure.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, TypeVar

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "logs"
LINT_BIN = ROOT / ".venv" / "lint" / "bin"
# In tests/python: the same on every TensorFlow, so the first is enough.
ONE_TENSORFLOW = ("launcher", "launchers", "test_schedules.py")
CPP_PARTS = ("cpp", "asan", "tsan")
# It measures times, so nothing else runs beside it.
OVERLAP = "test_xla_overlap.py"
SHOWN_LINES = 100
BENCH_PYTHON = ROOT / ".venv" / "bench" / "bin" / "python"
BENCH_KINDS = ("engine", "graph", "eager", "sets", "training", "scaling")
# Parts that run at once share these.
_output_lock = threading.Lock()
_interrupted = threading.Event()
T = TypeVar("T")


class Result(NamedTuple):
    """What one part did."""

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    def line(self) -> str:
        """Returns the plain line of the summary."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.name}: {self.passed} passed, {self.failed} failed{skipped} ({self.seconds:.0f} s)"


class Counts(NamedTuple):
    """The ids of the tests in a report, by what became of them."""

    passed: Set[str]
    failed: Set[str]
    skipped: Set[str]


def read_junit(path: pathlib.Path) -> Optional[Counts]:
    """Returns the tests in a JUnit file (pytest's, GoogleTest's); None if there is no readable report."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None
    counts = Counts(set(), set(), set())
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed.add(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            counts.skipped.add(name)
        else:
            counts.passed.add(name)
    # pytest reports a test that failed and whose teardown failed too as two cases.
    return Counts(counts.passed - counts.failed, counts.failed, counts.skipped - counts.failed)


def run(command: List[str], log: pathlib.Path, limit_s: int, **popen) -> int:
    """Runs a command into a log file, with a time limit for it and its children; returns its exit code."""
    with open(log, "ab") as out:
        out.write(f"$ {textwrap.shorten(' '.join(command), 400, placeholder=' …')}\n".encode())
        out.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **popen,
        )
        try:
            return wait(process, limit_s)
        except BaseException as error:
            # First TERM, which smddprun passes on and Bazel obeys; KILL for what is left.
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                pass
            finally:
                kill_group(process.pid)
                process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            out.write(f"\nended after its time limit of {limit_s} s\n".encode())
            return 124


def wait(process: subprocess.Popen, limit_s: int) -> int:
    """The exit code; raises TimeoutExpired after `limit_s`, and KeyboardInterrupt when that came anywhere."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            if _interrupted.is_set():
                raise KeyboardInterrupt from None
            if time.monotonic() >= deadline:
                raise


def kill_group(group: int) -> None:
    """Kills what is left of a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def finish(name: str, counts: Counts, code: int, start: float, log: pathlib.Path) -> Result:
    """Makes the result of a part and shows its log if it failed."""
    failed = len(counts.failed)
    if code != 0 and failed == 0:
        failed = 1
    result = Result(name, len(counts.passed), failed, len(counts.skipped), time.monotonic() - start)
    with _output_lock:
        if failed:
            lines = log.read_text(errors="replace").splitlines()
            print(f"--- {name}: exit code {code}, the last lines of {log.relative_to(ROOT)}:")
            print("\n".join(lines[-SHOWN_LINES:]))
            print("---")
        print(result.line(), flush=True)
    return result


def open_log(name: str) -> pathlib.Path:
    """Returns the path of the empty log of a part, and says that the part begins."""
    print(f"running {name} …", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name.replace(' ', '-')}.log"
    log.write_bytes(b"")
    return log


def run_at_once(runs: List[Callable[[], T]]) -> List[T]:
    """Runs parts at the same time; returns their results in the same order."""
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        futures = [pool.submit(each) for each in runs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            _interrupted.set()  # Such as Ctrl-C, which only this thread gets.
            raise


def cpp_sources() -> List[str]:
    """Returns our C++ files, as clang-format wants them."""
    folders = ("kernels", "ops", "tests/cpp", "tests/python", "benchmarks")
    return sorted(
        str(path) for folder in folders for end in ("*.h", "*.cc") for path in (ROOT / folder).rglob(end)
    )


def run_lint() -> Result:
    """Formatting, lint and types. Each tool is one test."""
    log, start, code = open_log("lint"), time.monotonic(), 0
    counts = Counts(set(), set(), set())
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["clang-format", "--dry-run", "-Werror", *cpp_sources()],
    ):
        tool_code = run([str(LINT_BIN / command[0]), *command[1:]], log, 300, cwd=ROOT)
        (counts.failed if tool_code else counts.passed).add(" ".join(command[:2]))
        code = code or tool_code
    return finish("lint", counts, code, start, log)


def run_pytest(
    name: str, python: pathlib.Path, arguments: List[str], limit_s: int, prefix: Sequence[str] = ()
) -> Result:
    """One pytest process. It starts in an empty folder: in the root, `tf_smddp` would be the source tree."""
    log, start = open_log(name), time.monotonic()
    folder = result_folder(name)
    report = folder / "report.xml"
    code = run(
        [*prefix, str(python), "-m", "pytest", *pytest_options(), f"--junitxml={report}", *arguments],
        log,
        limit_s,
        cwd=folder,
        env=venv_env(python),
    )
    return finish(name, read_junit(report) or Counts(set(), set(), set()), code, start, log)


def run_spmd(name: str, python: pathlib.Path, size: int, limit_s: int) -> Result:
    """The SPMD suite at one size. A test counts once, as failed if it failed on any rank."""
    log, start = open_log(name), time.monotonic()
    folder = result_folder(name)
    code = run(
        [
            str(python.parent / "smddprun"),
            "-np",
            str(size),
            str(python),
            str(ROOT / "tools" / "spmd_pytest.py"),
            str(folder),
            *pytest_options(),
            str(ROOT / "tests" / "python" / "spmd"),
        ],
        log,
        limit_s,
        cwd=folder,
        env=venv_env(python),
    )
    reports = [read_junit(folder / f"rank-{rank}.xml") for rank in range(size)]
    whole = [report for report in reports if report]
    failed = {test for report in whole for test in report.failed}
    failed |= {f"rank {rank} left no report" for rank, report in enumerate(reports) if not report}
    # Every rank must run the same tests: one that only some ranks run would hang in its first collective.
    ran = [report.passed | report.failed | report.skipped for report in whole]
    failed |= set.union(*ran) - set.intersection(*ran) if ran else set()
    passed = set.intersection(*(report.passed for report in whole)) if whole else set()
    skipped = {test for report in whole for test in report.skipped} - failed - passed
    if code or failed:
        add_rank_logs(folder, log)
    return finish(name, Counts(passed - failed, failed, skipped), code, start, log)


def add_rank_logs(folder: pathlib.Path, log: pathlib.Path) -> None:
    """Adds the ends of what the ranks other than 0 wrote; a rank may have been killed at any point."""
    with open(log, "a") as out:
        for path in sorted(folder.glob("rank-*.log")):
            lines = path.read_text(errors="replace").splitlines()
            out.write(f"{path.name}, its last lines:\n" + "\n".join(lines[-SHOWN_LINES // 4 :]) + "\n")


def pytest_options() -> List[str]:
    """Returns the options that name the project, since pytest does not start in it."""
    return ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]


def result_folder(name: str) -> pathlib.Path:
    """Returns a new, empty folder for the reports of a part."""
    folder = ROOT / ".cache" / "results" / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def venv_env(python: pathlib.Path) -> Dict[str, str]:
    """Returns the environment in which `python` and `smddprun` are those of the virtual environment."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    env.update(PATH=f"{python.parent}{os.pathsep}{env['PATH']}", VIRTUAL_ENV=str(python.parent.parent))
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return env


def run_cpp(name: str, flags: List[str], limit_s: int) -> Result:
    """The C++ tests through Bazel. The cases of each GoogleTest program are counted."""
    log, start = open_log(name), time.monotonic()
    events = result_folder(name) / "events.json"
    command = [
        sys.executable,
        str(ROOT / "tools" / "run_bazel.py"),
        "test",
        "//tests/cpp/...",
        "--keep_going",
        "--noshow_progress",
        f"--build_event_json_file={events}",
        *flags,
    ]
    code = run(command, log, limit_s, cwd=ROOT)
    counts = Counts(set(), set(), set())
    for line in events.read_text().splitlines() if events.exists() else []:
        event = json.loads(line)
        if "testResult" in event:
            add_bazel_result(event, counts)
    return finish(
        name, Counts(counts.passed - counts.failed, counts.failed, counts.skipped), code, start, log
    )


def add_bazel_result(event: Dict, counts: Counts) -> None:
    """Adds one test program's cases to the counts; a program that crashed or hung is one failure."""
    label = event["id"]["testResult"]["label"]
    result = event["testResult"]
    report = None
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            report = read_junit(pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)))
    if report:
        for into, names in zip(counts, report):
            into.update(f"{label} {name}" for name in names)
    if result["status"] != "PASSED" and not (report and report.failed):
        counts.failed.add(label)
    elif result["status"] == "PASSED" and not report:
        counts.passed.add(label)


def run_bench(version: str) -> Result:
    """Runs each benchmark for some seconds; each is one test. They check their results, not their speed."""
    log, start, code = open_log("bench"), time.monotonic(), 0
    counts = Counts(set(), set(), set())
    python = venv_python(version)
    cpp = [
        "run",
        "//benchmarks/cpp:reduce_benchmark",
        "--noshow_progress",
        "--",
        "--benchmark_min_time=0.001",
    ]
    bazel = [sys.executable, str(ROOT / "tools" / "run_bazel.py")]
    folder = result_folder("bench")
    sweeps = [
        str(BENCH_PYTHON),
        str(ROOT / "benchmarks" / "run.py"),
        "--quick",
        "--peers=",
        f"--output={folder}",
    ]
    env = dict(venv_env(python), TF_SMDDP_BENCH_PYTHON=str(python))
    for name, command in (
        ("benchmarks/cpp", [*bazel, *cpp]),
        *((f"benchmarks/run.py {kind}", [*sweeps, kind]) for kind in BENCH_KINDS),
    ):
        tool_code = run(command, log, 300, cwd=folder, env=env)
        (counts.failed if tool_code else counts.passed).add(name)
        code = code or tool_code
    return finish("bench", counts, code, start, log)


def venv_python(version: str) -> pathlib.Path:
    """Returns the Python of the virtual environment with this TensorFlow."""
    return ROOT / ".venv" / f"tf-{version}" / "bin" / "python"


def tsan_flags() -> List[str]:
    """Returns the flags for TSan; GCC 12's cannot run where addresses are randomised by more than 28 bits."""
    bits = pathlib.Path("/proc/sys/vm/mmap_rnd_bits")
    try:
        randomised = int(bits.read_text())
    except OSError:
        return ["--config=tsan"]
    return ["--config=tsan", "--run_under=setarch -R"] if randomised > 28 else ["--config=tsan"]


def run_parts(parts: List[str], tensorflows: List[str]) -> List[Result]:
    """Runs parts in turn, the model beside the C++ tests; returns a result for each line of the summary."""

    def run_in_turn(lane: List[str]) -> List[Result]:
        return [result for part in lane for result in run_part(part, tensorflows)]

    results = []
    for _, group in itertools.groupby(parts, lambda part: part in (*CPP_PARTS, "model")):
        in_turn = list(group)
        lanes = [[part for part in in_turn if (part == "model") == model] for model in (False, True)]
        results += run_at_once([functools.partial(run_in_turn, lane) for lane in lanes if lane])
    return [result for lane in results for result in lane]


def run_part(part: str, tensorflows: List[str]) -> List[Result]:
    """Runs one part; returns a result for each line of the summary."""
    if part == "lint":
        return [run_lint()]
    if part == "layering":
        return [run_pytest("layering", LINT_BIN / "python", [str(ROOT / "tests" / "layering")], 300)]
    if part == "cpp":
        return [run_cpp("cpp", [], 900)]
    if part == "asan":
        return [run_cpp("cpp asan+ubsan", ["--config=asan"], 1200)]
    if part == "tsan":
        return [run_cpp("cpp tsan", tsan_flags(), 1200)]
    if part == "model":
        # It only computes: with what the C++ tests, which often wait, leave of the cores.
        tests = [str(ROOT / "tests" / "model")]
        return [run_pytest("model", LINT_BIN / "python", tests, 2400, ["chrt", "--idle", "0"])]
    if part == "bench":
        tests = [str(ROOT / "tests" / "benchmarks")]
        arithmetic = run_pytest("benchmarks", LINT_BIN / "python", tests, 300)
        return [arithmetic, run_bench(tensorflows[0])]
    return run_python(tensorflows)


def run_python(tensorflows: List[str]) -> List[Result]:
    """The Python tests. What does not keep two cores busy runs beside another such part."""
    tests = ROOT / "tests" / "python"
    pythons = [(f"python tf-{version}", venv_python(version)) for version in tensorflows]
    ignored = [f"--ignore={tests / name}" for name in ("spmd", OVERLAP, *ONE_TENSORFLOW)]
    results = []
    for name, python in pythons:
        # Whole jobs often wait: for a start, a death, a stall.
        results += run_at_once(
            [
                functools.partial(run_pytest, name, python, [str(tests), *ignored], 1200),
                functools.partial(run_spmd, f"{name} np-1", python, 1, 900),
            ]
        )
        results.append(run_pytest(f"{name} overlap", python, [str(tests / OVERLAP)], 300))
    name, python = pythons[0]
    results.append(run_pytest(f"{name} schedules", python, [str(tests / "test_schedules.py")], 900))
    results += run_at_once(
        [
            functools.partial(run_pytest, f"{name} {folder}", python, [str(tests / folder)], 900)
            for folder in ("launcher", "launchers")
        ]
    )
    for size in (2, 3):
        results += [run_spmd(f"{name} np-{size}", python, size, 600) for name, python in pythons]
    return results


def main() -> int:
    """Returns 0 if everything that ran passed."""
    parts = ("lint", "layering", "cpp", "asan", "tsan", "model", "python", "bench")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tf", action="append", default=[], help="a TensorFlow version; for python and bench"
    )
    parser.add_argument("part", nargs="+", choices=parts)
    options = parser.parse_args()
    if {"python", "bench"} & set(options.part) and not options.tf:
        parser.error("the parts python and bench need --tf")

    # Under nohup, or in a script's background, these are ignored, and so would they be in all ranks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    results = run_parts(options.part, options.tf)
    passed, failed, skipped = (
        sum(getattr(result, field) for result in results) for field in Result._fields[1:4]
    )
    if len(results) > 1:
        print()
        for result in results:
            print(result.line())
    print(f"total: {passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
