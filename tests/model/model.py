"""Runs the model with Spin: compiles it for one choice of parameters, and explores every reachable state."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
from typing import Dict, NamedTuple, Sequence

FOLDER = pathlib.Path(__file__).resolve().parent

# Far more than any run needs, also one that gets only what others leave of the cores: what is cut short
# proves nothing.
LIMIT_S = 2000
MAX_DEPTH = 2_000_000
MAX_MEGABYTES = 4000


class Outcome(NamedTuple):
    """The findings of an exploration."""

    states: int
    seconds: float
    violation: str  # what was found to be wrong; "" if nothing was


def explore(
    folder: pathlib.Path, defines: Sequence[str], optimised: bool = True, source: str = "engine"
) -> Outcome:
    """Explores `source`.pml with `defines` ("RANKS=3") in the empty `folder`, until the first violation.

    A model that is not `optimised` compiles in half the time, and runs three times slower.

    Raises RuntimeError if it cannot be explored whole; subprocess.TimeoutExpired if that takes too long.
    """
    options = [f"-D{define}" for define in defines]
    _run(["spin", "-a", *options, str(FOLDER / f"{source}.pml")], folder)
    # This function runs once, and is what the compiler would optimise longest.
    (folder / "unoptimised.h").write_text('void settable(void) __attribute__((optimize("O0")));\n')
    # COLLAPSE keeps each state whole, in a third of the memory; nothing here keeps less than a state.
    flags = ["-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=1024", f"-DMEMLIM={MAX_MEGABYTES}", "-DNOFAIR"]
    _run(
        [
            "gcc",
            "-O1" if optimised else "-O0",
            "-w",
            "-include",
            "unoptimised.h",
            *flags,
            "-o",
            "pan",
            "pan.c",
        ],
        folder,
    )
    # -E: the model says itself, in Quiescence, when it may stand still.
    output = _run(["./pan", "-E", "-n", f"-m{MAX_DEPTH}"], folder)
    found = re.search(r"errors: (\d+)", output)
    states = re.search(r"(\d+) states, stored", output)
    if found is None or states is None:
        raise RuntimeError(f"the exploration of {options} ended early:\n{output[-3000:]}")
    violation = re.search(r"^pan:\d*:? *(.*)", output, re.MULTILINE) if found[1] != "0" else None
    if violation is None and re.search("max search depth|Search not completed|out of memory", output):
        raise RuntimeError(f"the exploration of {options} is not whole:\n{output[-3000:]}")
    seconds = re.search(r"elapsed time ([\d.]+)", output)
    return Outcome(int(states[1]), float(seconds[1]) if seconds else 0.0, violation[1] if violation else "")


def _run(command: Sequence[str], folder: pathlib.Path) -> str:
    """Runs a command in `folder` and returns what it wrote; RuntimeError if it failed."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


class Explorations:
    """Explores several choices of parameters at once, one for each core, in the order of their start."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._pool = concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        self._outcomes: Dict[str, concurrent.futures.Future] = {}

    def start(
        self, name: str, defines: Sequence[str], optimised: bool = True, source: str = "engine"
    ) -> None:
        """Starts one; `name` must be that of a new folder."""
        folder = self._folder / name
        folder.mkdir()
        self._outcomes[name] = self._pool.submit(explore, folder, defines, optimised, source)

    def outcome(self, name: str) -> Outcome:
        """Waits for one that was started."""
        return self._outcomes[name].result()

    def stop(self) -> None:
        """Forgets what has not begun, and waits for the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)
