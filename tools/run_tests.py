#!/usr/bin/env python3
"""Runs parts of the test suite: tools/run_tests.py [--quick | --all] [--tf VERSION]... PART...

Parts: set-up (the Python environments, beside the parts that need none), lint, layering (and the tests of
tools/), cpp, asan, tsan, model, jobs (whole jobs, which tests start), spmd (the suite that all ranks run),
launchers (smddprun, and other launchers), bench (some seconds of each benchmark, to show that they work).
The last four and set-up need --tf. docs/testing.md says what each part holds, and what only --all runs.
`make` has set up what the other parts need. Each part has a time limit, and a log in .cache/logs that is
shown when the part fails; a part that ends without a report, or with an error that no report explains,
counts as one failure.
"""

import argparse
import concurrent.futures
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Sequence, TypeVar

from test_results import (
    Case,
    Report,
    Result,
    merge_ranks,
    print_table,
    read_bazel_events,
    read_junit,
    totals,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".cache" / "results"
LOGS = ROOT / ".cache" / "logs"
LINT_BIN = ROOT / ".venv" / "lint" / "bin"
PYTHON_TESTS = ROOT / "tests" / "python"
PARTS = ("set-up", "lint", "layering", "cpp", "asan", "tsan", "model", "jobs", "spmd", "launchers", "bench")
NEED_TENSORFLOW = {"jobs", "spmd", "launchers", "bench"}
# It measures times, so nothing else runs beside it.
OVERLAP = PYTHON_TESTS / "test_xla_overlap.py"
# Their ranks keep all cores busy.
SCHEDULES = PYTHON_TESTS / "test_schedules.py"
# What only computes or downloads gets what the other parts, which often wait, leave of the cores.
IDLE = ("chrt", "--idle", "0")
BESIDE = ("model", "set-up")
SHOWN_LINES = 100
# In the folder of a part's results: the tests that its marks and options left out.
LEFT_OUT = "left-out.txt"
BENCH_PYTHON = ROOT / ".venv" / "bench" / "bin" / "python"
BENCH_KINDS = ("engine", "graph", "eager", "sets")
LONG_BENCH_KINDS = ("training", "scaling")
# Parts that run at once share these.
_output_lock = threading.Lock()
_interrupted = threading.Event()
T = TypeVar("T")


class Options(NamedTuple):
    """What the command line asks for."""

    quick: bool
    everything: bool
    tensorflows: List[str]


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


def finish(name: str, report: Report, code: int, start: float, log: pathlib.Path) -> Result:
    """Makes the result of a part and shows its log if it failed."""
    failed = any(case.outcome == "failed" for case in report.values())
    if code != 0 and not failed:
        report = {**report, f"exit code {code}": Case("failed")}
    result = Result(name, report, time.monotonic() - start)
    with _output_lock:
        if failed or code != 0:
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
    report: Report = {}
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["clang-format", "--dry-run", "-Werror", *cpp_sources()],
    ):
        begin = time.monotonic()
        tool_code = run([str(LINT_BIN / command[0]), *command[1:]], log, 300, cwd=ROOT)
        outcome = "failed" if tool_code else "passed"
        report[" ".join(command[:2])] = Case(outcome, time.monotonic() - begin)
        code = code or tool_code
    return finish("lint", report, code, start, log)


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
    return finish(name, read_junit(report) or {}, code, start, log)


def run_spmd(name: str, python: pathlib.Path, size: int, limit_s: int, marks: str = "") -> Result:
    """The SPMD suite at one size, or what `marks` select of it."""
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
            *selection(marks),
            f"--left-out={LEFT_OUT}",
            str(PYTHON_TESTS / "spmd"),
        ],
        log,
        limit_s,
        cwd=folder,
        env=venv_env(python),
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


def pytest_options() -> List[str]:
    """Returns the options that name the project, since pytest does not start in it."""
    return ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]


def selection(marks: str) -> List[str]:
    """Returns the options that select tests by an expression of pytest's -m; "" selects all."""
    return ["-m", marks] if marks else []


def result_folder(name: str) -> pathlib.Path:
    """Returns a new, empty folder for the reports of a part."""
    folder = RESULTS / name.replace(" ", "-")
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
    return finish(name, read_bazel_events(events), code, start, log)


def run_bench(options: Options) -> Result:
    """Runs each benchmark for some seconds; each is one test. They check their results, not their speed."""
    log, start, code = open_log("bench"), time.monotonic(), 0
    report: Report = {}
    python = venv_python(options.tensorflows[0])
    kinds = [*BENCH_KINDS, *(LONG_BENCH_KINDS if options.everything else ())]
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
        *((f"benchmarks/run.py {kind}", [*sweeps, kind]) for kind in kinds),
    ):
        begin = time.monotonic()
        tool_code = run(command, log, 300, cwd=folder, env=env)
        report[name] = Case("failed" if tool_code else "passed", time.monotonic() - begin)
        code = code or tool_code
    return finish("bench", report, code, start, log)


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


def run_parts(parts: List[str], options: Options) -> List[Result]:
    """Runs the parts; returns a result for each row of the table.

    The model runs beside all others. What needs no TensorFlow runs first, and the set-up beside it.
    """

    def in_turn(lane: List[str]) -> List[Result]:
        return [result for part in lane for result in run_part(part, options)]

    def others() -> List[Result]:
        with_tensorflow = [part for part in parts if part in NEED_TENSORFLOW]
        without = [part for part in parts if part not in NEED_TENSORFLOW and part not in BESIDE]
        lanes = [without, [part for part in parts if part == "set-up"]]
        results = flat(run_at_once([functools.partial(in_turn, lane) for lane in lanes if lane]))
        if "set-up" in parts:
            results.append(
                run_make("set-up install", [f".venv/tf-{v}/.installed" for v in options.tensorflows])
            )
        if any("set-up" in result.name and result.count("failed") for result in results):
            return results
        return results + in_turn(with_tensorflow)

    model = [functools.partial(in_turn, ["model"])] if "model" in parts else []
    return flat(run_at_once([others, *model]))


def flat(lists: List[List[Result]]) -> List[Result]:
    """Returns the lists as one."""
    return [result for results in lists for result in results]


def run_make(name: str, targets: List[str], prefix: Sequence[str] = ()) -> Result:
    """Sets up something by `make`. It is no test: only its failure counts."""
    log, start = open_log(name), time.monotonic()
    code = run([*prefix, "make", "--no-print-directory", *targets], log, 1800, cwd=ROOT)
    return finish(name, {}, code, start, log)


def run_part(part: str, options: Options) -> List[Result]:
    """Runs one part; returns a result for each row of the table."""
    if part == "lint":
        return [run_lint()]
    if part == "layering":
        folders = [str(ROOT / "tests" / name) for name in ("layering", "tools")]
        return [run_pytest("layering", LINT_BIN / "python", folders, 300)]
    if part == "cpp":
        return [run_cpp("cpp", ["--config=all"] if options.everything else [], 1200)]
    if part == "asan":
        flags = ["--config=asan", *(["--config=all_asan"] if options.everything else [])]
        return [run_cpp("cpp asan+ubsan", flags, 1800)]
    if part == "tsan":
        flags = [*tsan_flags(), *(["--config=all_tsan"] if options.everything else [])]
        return [run_cpp("cpp tsan", flags, 1800)]
    if part == "model":
        tests = [*selection("" if options.everything else "not long"), str(ROOT / "tests" / "model")]
        return [run_pytest("model", LINT_BIN / "python", tests, 2400, IDLE)]
    if part == "set-up":
        environments = ["bench", *(f"tf-{version}" for version in options.tensorflows)]
        return [run_make("set-up", [f".venv/{name}/.requirements" for name in environments], IDLE)]
    if part == "bench":
        tests = [str(ROOT / "tests" / "benchmarks")]
        arithmetic = run_pytest("benchmarks", LINT_BIN / "python", tests, 300)
        return [arithmetic, run_bench(options)]
    return {"jobs": run_jobs, "spmd": run_spmd_sizes, "launchers": run_launchers}[part](options)


def run_jobs(options: Options) -> List[Result]:
    """Whole jobs: all of them on the first TensorFlow, those that depend on its version on the others, too.

    They often wait: for a start, a death, a stall. So the SPMD suite with one rank runs beside them.
    """
    ignored = [f"--ignore={PYTHON_TESTS / name}" for name in ("spmd", "launcher", "launchers")]
    ignored += [f"--ignore={path}" for path in (OVERLAP, SCHEDULES)]
    not_long = selection("" if options.everything else "not long")
    engine_tests = "" if options.everything else "not long and not one_tensorflow"
    jobs, alone = [], []
    for version in options.tensorflows:
        first = version == options.tensorflows[0]
        python = venv_python(version)
        arguments = [
            *(not_long if first else selection(engine_tests)),
            *ignored,
            f"--left-out={LEFT_OUT}",
            str(PYTHON_TESTS),
        ]
        jobs.append(functools.partial(run_pytest, f"jobs tf-{version}", python, arguments, 1200))
        if first or options.everything:
            marks = "" if options.everything else "one_rank"
            alone.append(functools.partial(run_spmd, f"spmd tf-{version} np-1", python, 1, 900, marks))
    results = flat(run_at_once([functools.partial(call_in_turn, lane) for lane in (jobs, alone)]))
    for version in options.tensorflows if options.everything else options.tensorflows[:1]:
        results.append(run_pytest(f"overlap tf-{version}", venv_python(version), [str(OVERLAP)], 300))
    name, python = f"schedules tf-{options.tensorflows[0]}", venv_python(options.tensorflows[0])
    results.append(run_pytest(name, python, [*not_long, str(SCHEDULES)], 900))
    return results


def call_in_turn(calls: List[Callable[[], T]]) -> List[T]:
    """Returns what the calls return."""
    return [call() for call in calls]


def run_spmd_sizes(options: Options) -> List[Result]:
    """The SPMD suite: each TensorFlow at each size; without --all the first with 2 ranks, the last with 3.

    With --quick it is the first with 2 ranks alone, without what is `slow`.
    """
    if options.quick:
        version = options.tensorflows[0]
        return [run_spmd(f"spmd tf-{version} np-2", venv_python(version), 2, 600, "not slow")]
    pairs = [(version, size) for size in (2, 3) for version in options.tensorflows]
    if not options.everything:
        pairs = [(options.tensorflows[0], 2), (options.tensorflows[-1], 3)]
    return [
        run_spmd(f"spmd tf-{version} np-{size}", venv_python(version), size, 900) for version, size in pairs
    ]


def selected_nowhere(results: List[Result]) -> List[Result]:
    """Returns a failed part if the marks of a test let it run in no part; else nothing."""
    left_out = {name for path in RESULTS.glob(f"*/{LEFT_OUT}") for name in path.read_text().splitlines()}
    nowhere = left_out - {name for result in results for name in result.report}
    if not nowhere:
        return []
    print(f"these tests ran nowhere: {', '.join(sorted(nowhere))}")
    return [Result("ran nowhere", {name: Case("failed") for name in nowhere}, 0.0)]


def run_launchers(options: Options) -> List[Result]:
    """The launchers, which do not use TensorFlow: the first one is enough."""
    python = venv_python(options.tensorflows[0])
    return run_at_once(
        [
            functools.partial(run_pytest, folder, python, [str(PYTHON_TESTS / folder)], 900)
            for folder in ("launcher", "launchers")
        ]
    )


def main() -> int:
    """Returns 0 if everything that ran passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--quick", action="store_true", help="what `make quick` runs of each part")
    level.add_argument("--all", action="store_true", help="what `make test-all` runs of each part")
    parser.add_argument("--tf", action="append", default=[], help="a TensorFlow version")
    parser.add_argument("part", nargs="+", choices=PARTS)
    arguments = parser.parse_args()
    if (NEED_TENSORFLOW | {"set-up"}) & set(arguments.part) and not arguments.tf:
        parser.error(f"the parts set-up, {', '.join(sorted(NEED_TENSORFLOW))} need --tf")

    # Under nohup, or in a script's background, these are ignored, and so would they be in all ranks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    start = time.monotonic()
    shutil.rmtree(RESULTS, ignore_errors=True)
    results = run_parts(arguments.part, Options(arguments.quick, arguments.all, arguments.tf))
    if {"jobs", "spmd"} <= set(arguments.part) and len(arguments.tf) > 1:
        results += selected_nowhere(results)
    print_table(results, time.monotonic() - start)
    print(f"total: {totals(results)}")
    return 1 if any(result.count("failed") for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
