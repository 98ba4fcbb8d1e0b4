#!/usr/bin/env python3
"""Leaves out each wait that kernels/ makes on a GPU, one after the other, and expects that a test fails.

    leave_out_waits.py "[VARIABLE=VALUE]... PROGRAM [ARGUMENT]..."...

The programs are tests, linked with the pretend GPU, that pass. A wait is known by the functions that make it.
It is found if one of the programs that make it fails without it. Prints a line for each wait; exits with 1 if
one is not found.
"""

import collections
import itertools
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import Dict, List, Tuple

LIMIT_S = 60
# Waits of the tests themselves, and those of their own calls of a device, are no business of ours.
OURS, TESTS = ("tf_smddp::cuda::", "tf_smddp::nccl::"), "tf_smddp::testing::"

Functions = Tuple[str, ...]


def split(program: str) -> Tuple[Dict[str, str], List[str]]:
    """Returns the variables, and the command."""
    words = shlex.split(program)
    first = next(i for i, word in enumerate(words) if "=" not in word)
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def run(program: str, **more: str) -> bool:
    """Returns whether the program passes."""
    variables, command = split(program)
    try:
        done = subprocess.run(
            [*command, "--gtest_fail_fast", "--gtest_brief=1"],
            env={**os.environ, **variables, **more},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def functions_of(program: str, wait: str) -> Functions:
    """Returns the functions that make the wait, the nearest first; none if it is made by another library."""
    binary = split(program)[1][0]
    callers = [place.rsplit("+", 1) for place in wait.split()]
    # The beginning of a thread is in another file.
    own = list(itertools.takewhile(lambda caller: caller[0] == pathlib.Path(binary).name, callers))
    if not own:
        return ()
    # The address after a call may belong to the next line, or function; the one before it does not.
    places = [hex(int(at, 16) - 1) for _, at in own]
    names = subprocess.run(
        ["addr2line", "-f", "-C", "-e", binary, *places], capture_output=True, text=True, check=True
    ).stdout.splitlines()[::2]
    return tuple(name.split("(")[0] for name in names)


def waits_of(program: str) -> Dict[Functions, List[str]]:
    """Returns the waits of kernels/ that the program makes, in the order of their addresses."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "waits")
        if not run(program, PRETEND_GPU_WAITS=str(file)):
            raise SystemExit(f"{program} fails without any wait left out")
        lines = sorted(file.read_text().splitlines())
    waits = collections.defaultdict(list)
    for wait in lines:
        functions = functions_of(program, wait)
        if functions and functions[0].startswith(OURS) and not functions[-1].startswith(TESTS):
            waits[functions].append(wait)
    return waits


def main() -> int:
    """Returns the exit code."""
    # By the functions, and a number for several waits of the same.
    makers: Dict[Tuple[Functions, int], List[Tuple[str, str]]] = collections.defaultdict(list)
    for program in sys.argv[1:]:
        for functions, waits in waits_of(program).items():
            for number, wait in enumerate(waits, 1):
                makers[functions, number].append((program, wait))
    if not makers:
        raise SystemExit("the programs make no waits")
    missed = 0
    for (functions, number), tries in sorted(makers.items()):
        found = [program for program, wait in tries if not run(program, PRETEND_GPU_LEAVE_OUT=wait)]
        verdict = "found" if found else "NOT FOUND"
        missed += not found
        print(f"{verdict}: without wait {number} of {' < '.join(functions)}", flush=True)
    print(f"{len(makers)} waits, {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
