#!/usr/bin/env python3
"""Runs parts of the test suite: run_tests.py [--quick | --all] [--tf VERSION]... [--torch VERSION]... PART...

Parts: set-up (the Python environments, and the package in them), lint, docs (the site, and what its pages
quote and link to), layering (and the tests of tools/), cpp, asan, tsan, fuzz (with clang, and --all),
model, jobs (whole jobs, which tests start), spmd (the suite that all ranks run), launchers (smddprun, and
other launchers), torch (jobs with PyTorch), gpu (TensorFlow's builds for GPUs, on a pretend one), overlap
(how much of slow transfers is waited for), bench (some seconds of each benchmark, to show that they work).
set-up and those that need its environments need --tf, and torch needs --torch; without set-up, `make` has
made them. docs/testing.md says what each part holds, and what only --all runs. Each part has a time limit,
and a log in .cache/logs that is shown when the part fails; a part that ends without a report, or with an
error that no report explains, counts as one failure.
"""

import argparse
import functools
import shutil
import signal
import sys
import threading
import time
from typing import List, Sequence

from test_parts import NEED_TENSORFLOW, PARTS, Options, Run, runs_of, selected_nowhere
from test_process import RESULTS, run_at_once
from test_results import Result, print_failures, print_table, totals

# Two lanes run at once, since much of what tests do is to wait. Three would starve tests with time limits.
# A lane begins with parts of its own. Then both take what comes next of the shared parts, which need set-up.
# cpp comes after set-up, which compiles the same files for the op library: it finds them in the cache.
OWN = (("lint", "docs", "layering", "model", "asan", "tsan", "fuzz", "cpp"), ("set-up",))
SHARED = ("jobs", "launchers", "spmd", "torch", "gpu", "bench")
# Parts that measure times run alone, at the end.
LAST = ("overlap",)


def run_parts(parts: List[str], options: Options) -> List[Result]:
    """Runs the parts; returns a result for each row of the table."""

    def runs(names: Sequence[str]) -> List[Run]:
        return [each for name in names if name in parts for each in runs_of(name, options)]

    shared = iter(runs(SHARED))
    set_up_is_over = threading.Event()

    def lane(own: Sequence[str]) -> List[Result]:
        try:
            results = [each() for each in runs(own)]
            if set_up_failed(results):
                list(shared)  # takes all, so that neither lane runs any
        finally:
            if "set-up" in own:
                set_up_is_over.set()
        set_up_is_over.wait()
        return results + [each() for each in shared]

    lanes = run_at_once([functools.partial(lane, own) for own in OWN])
    results = [result for of_lane in lanes for result in of_lane]
    return results if set_up_failed(results) else [*results, *(each() for each in runs(LAST))]


def set_up_failed(results: List[Result]) -> bool:
    """Returns whether the Python environments, which other parts need, could not be set up."""
    return any(result.name == "set-up" and result.count("failed") for result in results)


def main() -> int:
    """Returns 0 if everything that ran passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--quick", action="store_true", help="what `make quick` runs of each part")
    level.add_argument("--all", action="store_true", help="what `make test-all` runs of each part")
    parser.add_argument("--tf", action="append", default=[], help="a TensorFlow version")
    parser.add_argument("--torch", action="append", default=[], help="a PyTorch version")
    parser.add_argument("part", nargs="+", choices=PARTS)
    arguments = parser.parse_args()
    if (NEED_TENSORFLOW | {"set-up"}) & set(arguments.part) and not arguments.tf:
        parser.error(f"the parts set-up, {', '.join(sorted(NEED_TENSORFLOW))} need --tf")
    if "torch" in arguments.part and not arguments.torch:
        parser.error("the part torch needs --torch")

    # Under nohup, or in a script's background, these are ignored, and so would they be in all ranks. Whoever
    # ends this ends what it has started.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    start = time.monotonic()
    shutil.rmtree(RESULTS, ignore_errors=True)
    results = run_parts(
        arguments.part, Options(arguments.quick, arguments.all, arguments.tf, arguments.torch)
    )
    if {"jobs", "spmd"} <= set(arguments.part) and len(arguments.tf) > 1:
        results += selected_nowhere(results)
    print_table(results, time.monotonic() - start)
    print(f"total: {totals(results)}")
    print_failures(results)
    return 1 if any(result.count("failed") for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
