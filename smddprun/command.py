"""Finds the program that a command names, before any rank starts, so that a typing error gives one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

# The exit codes of a shell for these two mistakes.
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class CommandError(Exception):
    """The command can't be run. Carries the launcher's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        """Takes a message of one line, and the exit code that a shell gives."""
        super().__init__(message)
        self.exit_code = exit_code


def _executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _search(name: str, path: str) -> str | None:
    for directory in path.split(os.pathsep):
        candidate = os.path.join(directory or ".", name)
        if _executable(candidate):
            return candidate
    return None


def resolve(command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Returns the argument list to execute for `command`.

    The program is found as by a shell: a name with a slash is a path, any other name is searched in PATH. In
    addition, a name that ends in `.py` and is a file that cannot be executed runs with this Python, so that
    `smddprun train.py` works.

    Args:
      command: the program and its arguments.
      environ: the ranks' environment, for PATH.

    Returns:
      The words to execute; the first is a path.

    Raises:
      CommandError: there is no such program, or it is not executable.
    """
    name, *arguments = command
    found = name if "/" in name else _search(name, environ.get("PATH", os.defpath))
    if found and _executable(found):
        return [found, *arguments]
    if name.endswith(".py") and os.path.isfile(name):
        return [sys.executable, name, *arguments]
    if "/" in name and os.path.isdir(name):
        raise CommandError(
            f"{name!r} is a directory, not a command; give a program or a .py file", NOT_EXECUTABLE
        )
    if "/" in name and os.path.exists(name):
        raise CommandError(
            f"{name!r} is not executable; run chmod +x {name}, or name its interpreter", NOT_EXECUTABLE
        )
    if "/" not in name and os.path.isfile(name):
        raise CommandError(f"{name!r} is not in PATH, but is a file here; run it as ./{name}", NOT_FOUND)
    if name.endswith(".py") and "/" not in name:
        raise CommandError(
            f"there is no script {name!r} in {os.getcwd()}, and no such command; check the spelling",
            NOT_FOUND,
        )
    where = f"there is no such file (working directory {os.getcwd()})" if "/" in name else "it is not in PATH"
    raise CommandError(f"command {name!r} not found: {where}; check the spelling", NOT_FOUND)
