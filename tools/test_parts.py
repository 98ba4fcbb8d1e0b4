"""The parts of the test suite: what each of them runs. docs/testing.md says what each part holds."""

import functools
import os
import pathlib
import sys
import time
from typing import Callable, Dict, List, NamedTuple, Sequence

from docs_part import DOCS_BIN, build_site
from lint_part import LINT_BIN, run_lint
from test_process import RESULTS, ROOT, finish, open_log, result_folder, run
from test_results import Case, Report, Result
from test_runners import (
    LEFT_OUT,
    PYTHON_TESTS,
    run_cpp,
    run_pytest,
    run_spmd,
    venv_env,
    venv_python,
)

PARTS = (
    "set-up",
    "lint",
    "docs",
    "layering",
    "cpp",
    "asan",
    "tsan",
    "fuzz",
    "model",
    "jobs",
    "spmd",
    "launchers",
    "torch",
    "gpu",
    "overlap",
    "bench",
)
NEED_TENSORFLOW = {"set-up", "jobs", "spmd", "launchers", "gpu", "overlap", "bench"}
OVERLAP = PYTHON_TESTS / "test_xla_overlap.py"
BENCH_PYTHON = ROOT / ".venv" / "bench" / "bin" / "python"
# The files of the SPMD suite that run under each MPI, and with three ranks in `make test`: the collectives,
# process sets, failed steps, and (by conftest.py's keyword) each test that two ranks are too few for.
_FILES = ("collectives", "allgather", "alltoall", "reducescatter", "compression", "process_sets", "retries")
COLLECTIVES = ["-k", " or ".join(f"test_{name}.py" for name in _FILES) + " or three_ranks"]
# Ranks that leave one after the other: with four, two leave before the last two are alone.
WITH_FOUR_RANKS = ["-k", "test_join.py"]
# In sets, all of ours run: the engine, graphs and eager mode.
BENCH_KINDS = ("engine", "order", "sets")
LONG_BENCH_KINDS = ("graph", "eager", "training", "scaling", "whole", "whole-busy")
FUZZ = ROOT / "tests" / "fuzz"
FUZZ_SECONDS = 20


# Each makes one row of the table.
Run = Callable[[], Result]


class Options(NamedTuple):
    """What the command line asks for."""

    quick: bool
    everything: bool
    tensorflows: List[str]
    torches: Sequence[str] = ()

    @property
    def limit_s(self) -> int:
        """How long one row of the table may take; a part that hangs must not take CI's 90 minutes."""
        return 7200 if self.everything else 2700


def selection(marks: str) -> List[str]:
    """Returns the options that select tests by an expression of pytest's -m; "" selects all."""
    return ["-m", marks] if marks else []


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


def run_fuzz() -> Result:
    """Fuzzes each target for some seconds, with clang; each is one test."""
    log, start, code = open_log("fuzz"), time.monotonic(), 0
    report: Report = {}
    for target in sorted(path.stem for path in FUZZ.glob("*_fuzz.cc")):
        begin = time.monotonic()
        target_code = run([str(FUZZ / "run.sh"), str(FUZZ_SECONDS), target], log, 300, cwd=ROOT)
        report[f"tests/fuzz/{target}"] = Case("failed" if target_code else "passed", time.monotonic() - begin)
        code = code or target_code
    return finish("fuzz", report, code, start, log)


def tsan_flags() -> List[str]:
    """Returns the flags for TSan; GCC 12's cannot run where addresses are randomised by more than 28 bits."""
    bits = pathlib.Path("/proc/sys/vm/mmap_rnd_bits")
    try:
        randomised = int(bits.read_text())
    except OSError:
        return ["--config=tsan"]
    return ["--config=tsan", "--run_under=setarch -R"] if randomised > 28 else ["--config=tsan"]


def run_set_up(options: Options) -> Result:
    """Sets up the Python environments, with the package. It is no test: only its failure counts.

    Its Bazel has a server and an output folder of its own, since the C++ tests run beside it; what one of
    them has compiled the other finds in the disk cache.
    """
    log, start = open_log("set-up"), time.monotonic()
    env = dict(os.environ, TF_SMDDP_BAZEL_STARTUP_ARGS=f"--output_base={ROOT / '.cache' / 'bazel-install'}")
    environments = [".venv/bench/.requirements"]
    if options.everything:
        toolkit = f".venv/sagemaker-{options.tensorflows[0]}/.requirements"
        environments += [".venv/openmpi/.requirements", toolkit]
        # The only version that tensorflow-io, TensorFlow's client for S3, works with.
        environments += [f".venv/s3-{v}/.requirements" for v in options.tensorflows if v == "2.15.1"]
    environments += [f".venv/tf-{version}/.installed" for version in options.tensorflows]
    environments += [f".venv/torch-{version}/.installed" for version in options.torches]
    for version in gpu_tensorflows(options):
        environments += [f".venv/gpu-{version}/{made}" for made in (".installed", ".pretend_gpu")]
    code = run(["make", "--no-print-directory", *environments], log, options.limit_s, cwd=ROOT, env=env)
    run([sys.executable, str(ROOT / "tools" / "run_bazel.py"), "shutdown"], log, 60, cwd=ROOT, env=env)
    return finish("set-up", {}, code, start, log)


def jobs(options: Options) -> List[Run]:
    """Whole jobs: all on the first TensorFlow, those that depend on its version on the others, too."""
    folders = [f"--ignore={PYTHON_TESTS / name}" for name in ("spmd", "launcher", "launchers", "gpu")]
    runs: List[Run] = []
    for version in options.tensorflows:
        marks = [] if options.everything else ["not long"]
        if version != options.tensorflows[0]:
            marks.append("not one_tensorflow")
        arguments = [
            *selection(" and ".join(marks)),
            *folders,
            f"--ignore={OVERLAP}",
            f"--left-out={LEFT_OUT}",
            str(PYTHON_TESTS),
        ]
        runs.append(
            functools.partial(
                run_pytest, f"jobs tf-{version}", venv_python(version), arguments, options.limit_s
            )
        )
    return runs


def overlap(options: Options) -> List[Run]:
    """How much of slow transfers a step waits for."""
    versions = options.tensorflows if options.everything else options.tensorflows[:1]
    return [
        functools.partial(
            run_pytest,
            f"overlap tf-{v}",
            venv_python(v),
            [*selection("" if options.everything else "not long"), str(OVERLAP)],
            options.limit_s,
        )
        for v in versions
    ]


def spmd(options: Options) -> List[Run]:
    """The SPMD suite: each TensorFlow with 2 ranks, and parts of it with 1 and 3.

    With --quick it is the first with 2 ranks alone, without what is `slow`. With --all, all of it runs on the
    first with 1 and 3 ranks, and on two hosts, too.
    """
    first, last = options.tensorflows[0], options.tensorflows[-1]
    if options.quick:
        runs = [(first, 2, selection("not long and not slow"))]
    elif options.everything:
        runs = [(first, 1, []), (first, 3, []), (first, 4, WITH_FOUR_RANKS)]
        runs += [(version, 2, []) for version in options.tensorflows]
        runs += [(version, 3, COLLECTIVES) for version in options.tensorflows[1:]]
    else:
        runs = [
            (first, 1, selection("not long and one_rank")),
            (first, 2, selection("not long")),
            (first, 3, [*selection("not long"), *COLLECTIVES, "--half-of-the-cases=first"]),
        ]
        if last != first:  # each case of a test on one of them
            runs[1][2].append("--half-of-the-cases=second")
            some = [*selection("not long and not one_tensorflow"), "--half-of-the-cases=first"]
            runs.append((last, 2, some))
    parts = [
        functools.partial(
            run_spmd, f"spmd tf-{version} np-{size}", venv_python(version), size, options.limit_s, selected
        )
        for version, size, selected in runs
    ]
    if options.everything:
        for mpi, some in (("openmpi4", []), ("openmpi5", COLLECTIVES), ("mpich", COLLECTIVES)):
            name = f"spmd tf-{first} {mpi} hosts-2+1"
            parts.append(
                functools.partial(
                    run_spmd, name, venv_python(first), 3, options.limit_s, some, hosts=(mpi, "2,1")
                )
            )
    return parts


def selected_nowhere(results: List[Result]) -> List[Result]:
    """Returns a failed part if the marks of a test let it run in no part; else nothing.

    Where a test failed nothing is said: a suite that ended early says nothing of the tests behind it, and a
    list of hundreds of them would hide the one that failed.
    """
    if any(result.count("failed") for result in results):
        return []
    left_out = {name for path in RESULTS.glob(f"*/{LEFT_OUT}") for name in path.read_text().splitlines()}
    nowhere = left_out - {name for result in results for name in result.report}
    if not nowhere:
        return []
    print(f"these tests ran nowhere: {', '.join(sorted(nowhere))}")
    return [Result("ran nowhere", {name: Case("failed") for name in nowhere}, 0.0)]


def launchers(options: Options) -> List[Run]:
    """The launchers, which do not use TensorFlow: the first one is enough."""
    python = venv_python(options.tensorflows[0])
    some = selection("" if options.everything else "not long")
    return [
        functools.partial(run_pytest, folder, python, [*some, str(PYTHON_TESTS / folder)], options.limit_s)
        for folder in ("launcher", "launchers")
    ]


def torch(options: Options) -> List[Run]:
    """Jobs with each PyTorch."""
    some = selection("" if options.everything else "not long")
    return [
        functools.partial(
            run_pytest,
            f"torch-{version}",
            venv_python(version, "torch"),
            [*some, str(ROOT / "tests" / "torch")],
            options.limit_s,
        )
        for version in options.torches
    ]


def gpu_tensorflows(options: Options) -> List[str]:
    """Returns the versions whose builds for GPUs are tested."""
    return options.tensorflows if options.everything else options.tensorflows[:1]


def pretend_gpu_env(version: str, policy: str) -> Dict[str, str]:
    """Returns the variables that put the pretend GPU in the place of CUDA."""
    folder = venv_python(version, "gpu").parent.parent / "pretend_gpu"
    if version.startswith("2.15."):
        what_xla_needs = {"PRETEND_GPU_CUDNN": "8", "XLA_FLAGS": "--xla_gpu_graph_level=0"}
    else:
        what_xla_needs = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
    return {
        "LD_LIBRARY_PATH": str(folder),
        "PATH": os.pathsep.join([str(folder), venv_env(venv_python(version, "gpu"))["PATH"]]),
        "PRETEND_GPU_KERNELS": str(folder / "libtensorflow_twins.so"),
        "PRETEND_GPU_POLICY": policy,
        **what_xla_needs,
        # Late, but not so late that thousands of small collectives take minutes.
        "PRETEND_GPU_LAZY_US": "300",
        "PRETEND_GPU_NCCL_PEERS_US": "300",
    }


def gpu(options: Options) -> List[Run]:
    """TensorFlow's builds for GPUs, on pretend ones; the SPMD suite there.

    The ranks have a GPU each, with NCCL or without, or share one.
    """
    first, last = options.tensorflows[0], options.tensorflows[-1]
    runs: List[Run] = [
        functools.partial(
            run_pytest,
            f"gpu tf-{version}",
            venv_python(version, "gpu"),
            [*selection("" if options.everything else "not long"), str(PYTHON_TESTS / "gpu")],
            options.limit_s,
        )
        for version in gpu_tensorflows(options)
    ]
    # The names of the last two say what TensorFlow finds of ours: its results come late, or early.
    policies = {
        "random": "random",
        "lazy": "lazy",
        "late": "tensorflow=prompt,*=lazy",
        "early": "tensorflow=lazy,*=prompt",
    }
    ways = {"nccl": {"PRETEND_GPU_DEVICES": "3"}, "host": {"PRETEND_GPU_DEVICES": "3", "SMDDP_NCCL": "0"}}
    ways["shared"] = {"PRETEND_GPU_DEVICES": "1"}
    suites = [(first, 2, "nccl", "random")]
    if options.everything:
        suites += [(first, 3, "nccl", "late"), (last, 2, "shared", "early"), (last, 2, "host", "lazy")]
    some = [] if options.everything else selection("gpu and not long")
    return runs + [
        functools.partial(
            run_spmd,
            f"gpu spmd tf-{version} np-{size} {way} {policy}",
            venv_python(version, "gpu"),
            size,
            options.limit_s,
            [*some, "--collectives-on-gpu"],
            {**pretend_gpu_env(version, policies[policy]), **ways[way]},
        )
        for version, size, way, policy in suites
    ]


def runs_of(part: str, options: Options) -> List[Run]:
    """Returns what one part runs."""
    lint_pytest = functools.partial(run_pytest, python=LINT_BIN / "python")
    if part == "lint":
        return [run_lint]
    if part == "docs":
        tests = functools.partial(
            run_pytest, "docs tests", DOCS_BIN / "python", [str(ROOT / "tests" / "docs")]
        )
        return [build_site, functools.partial(tests, limit_s=options.limit_s)]
    if part == "layering":
        folders = [str(ROOT / "tests" / name) for name in ("layering", "tools")]
        return [functools.partial(lint_pytest, "layering", arguments=folders, limit_s=options.limit_s)]
    if part == "cpp":
        tags = "-long" if options.quick else "long_sanitized,both,not_sanitized,-long"
        some = ["--build_tests_only", f"--test_tag_filters={tags}"]
        flags = ["--config=all"] if options.everything else some
        in_c = functools.partial(lint_pytest, "c", arguments=[str(ROOT / "tests" / "c")])
        return [
            functools.partial(run_cpp, "cpp", flags, options.limit_s),
            functools.partial(in_c, limit_s=options.limit_s),
        ]
    if part == "asan":
        flags = ["--config=asan", *(["--config=all_asan"] if options.everything else [])]
        return [functools.partial(run_cpp, "cpp asan+ubsan", flags, options.limit_s)]
    if part == "tsan":
        flags = [*tsan_flags(), *(["--config=all_tsan"] if options.everything else [])]
        return [functools.partial(run_cpp, "cpp tsan", flags, options.limit_s)]
    if part == "fuzz":  # without --all, tests of the part asan run the targets
        return [run_fuzz] if options.everything else []
    if part == "model":
        tests = [*selection("" if options.everything else "not long"), str(ROOT / "tests" / "model")]
        return [functools.partial(lint_pytest, "model", arguments=tests, limit_s=options.limit_s)]
    if part == "bench":
        tests = [*selection("" if options.everything else "not long"), str(ROOT / "tests" / "benchmarks")]
        return [
            functools.partial(lint_pytest, "benchmarks", arguments=tests, limit_s=options.limit_s),
            functools.partial(run_bench, options),
        ]
    if part == "set-up":
        return [functools.partial(run_set_up, options)]
    parts = {
        "jobs": jobs,
        "spmd": spmd,
        "launchers": launchers,
        "torch": torch,
        "gpu": gpu,
        "overlap": overlap,
    }
    return parts[part](options)
