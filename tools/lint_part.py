"""The part `lint` of the test suite: formatting, lint and types."""

import time
from typing import List

from test_process import ROOT, finish, open_log, run
from test_results import Case, Report, Result

LINT_BIN = ROOT / ".venv" / "lint" / "bin"


def cpp_sources() -> List[str]:
    """Returns our C++ files, as clang-format wants them."""
    folders = ("kernels", "ops", "torch_smddp", "tests", "third_party", "benchmarks")
    return sorted(
        str(path)
        for folder in folders
        for end in ("*.h", "*.cc", "*.cu")
        for path in (ROOT / folder).rglob(end)
    )


def run_lint() -> Result:
    """Runs them. Each tool is one test."""
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
