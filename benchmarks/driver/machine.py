"""Describes the machine and the software of a measurement, for its report."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import re
import subprocess
from typing import Dict


def describe() -> Dict[str, str]:
    """Returns processor, cores, memory, system, compiler, commit and date."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    return {
        "processor": cpu.group(1) if cpu else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(memory.group(1)) / (1 << 20):.0f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "compiler": _first_line(["g++", "--version"]),
        "commit": _first_line(["git", "-C", str(root), "describe", "--always", "--dirty"]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": f"{os.getloadavg()[0]:.1f} before the first run",
    }


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def _first_line(command: list) -> str:
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "unknown"
    return found.split("\n")[0] or "unknown"
