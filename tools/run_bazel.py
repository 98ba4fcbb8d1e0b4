#!/usr/bin/env python3
"""Finds a Bazel that runs and gives it the flags that its version needs.

As a program: `tools/run_bazel.py build //tf_smddp:_smddp_ops.so`; setup.py uses it as a module.

Environment:
    BAZEL: the binary to use; otherwise the first of bazelisk, bazel, /usr/bin/bazel that runs.
    TF_SMDDP_BAZEL_STARTUP_ARGS: startup flags, such as --output_base=/somewhere.
    TF_SMDDP_BAZEL_ARGS: flags of the command, such as --disk_cache=/somewhere.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import List, Optional, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
INSTALL_HINT = (
    "On Debian: `apt-get install bazel-bootstrap g++`. "
    "Elsewhere: install bazelisk, or set BAZEL to a Bazel of version 4 to 8."
)


def find_bazel() -> Optional[Tuple[str, int]]:
    """Returns (path, major version) of the first Bazel that runs, or None; Debian's has no version: 0.

    bazelisk fetches Bazel on its first run, so without a network it fails here and the next one is tried.
    """
    named = os.environ.get("BAZEL")
    tried = set()
    for name in [named] if named else ["bazelisk", "bazel", "/usr/bin/bazel"]:
        path = shutil.which(name)
        if not path or os.path.realpath(path) in tried:
            continue
        tried.add(os.path.realpath(path))
        probe = subprocess.run([path, "--version"], cwd=ROOT, capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            major = re.search(r"\d+", probe.stdout)
            return path, int(major.group()) if major else 0
    return None


def bazel_command(command: str, arguments: List[str]) -> List[str]:
    """Returns the full command line for `bazel <command> <arguments>`.

    Raises:
        SystemExit: There is no Bazel that runs, or it is one that cannot build this project.
    """
    found = find_bazel()
    if not found:
        named = os.environ.get("BAZEL")
        raise SystemExit(
            f"tf_smddp: {f'BAZEL={named} does not run' if named else 'no Bazel found'}. {INSTALL_HINT}"
        )
    path, major = found
    if major >= 9:
        raise SystemExit(
            f"tf_smddp: {path} is Bazel {major}, which no longer reads WORKSPACE files. {INSTALL_HINT}"
        )
    line = [path, *shlex.split(os.environ.get("TF_SMDDP_BAZEL_STARTUP_ARGS", "")), command]
    if command in ("build", "info", "run", "test"):
        if major >= 7:
            line.append("--noenable_bzlmod")
        if major >= 8:
            line.append("--enable_workspace")
        line += shlex.split(os.environ.get("TF_SMDDP_BAZEL_ARGS", ""))
    return line + arguments


def main() -> int:
    """Runs the command given on the command line in the project's root; returns Bazel's exit code.

    `--find` alone says which Bazel would run.
    """
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if sys.argv[1] == "--find":
        print(bazel_command("version", [])[0])
        return 0
    return subprocess.run(bazel_command(sys.argv[1], sys.argv[2:]), cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
