"""Runs the commands of the test suite's parts: with a log, a time limit, and nothing left behind."""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap
import threading
import time
from typing import Callable, List, TypeVar

from test_results import Case, Report, Result

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".cache" / "results"
LOGS = ROOT / ".cache" / "logs"
SHOWN_LINES = 100
# Parts that run at once share these.
_output_lock = threading.Lock()
_interrupted = threading.Event()
T = TypeVar("T")


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


def result_folder(name: str) -> pathlib.Path:
    """Returns a new, empty folder for the reports of a part."""
    folder = RESULTS / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
