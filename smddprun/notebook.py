"""run: starts ranks from a running Python process, such as a notebook, and returns their results.

smddprun starts, watches and ends them, as always. A folder carries the call to the ranks, and each rank's
result or traceback back; `notebook_rank` is what the ranks run. The output of all comes through one pipe.
"""

from __future__ import annotations

import codecs
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
from typing import Any, Callable, List, Mapping, NamedTuple, NoReturn, Optional, Sequence

import cloudpickle

from smddp import library, runtime
from smddprun import environment
from smddprun.options import MAX_RANKS

CALL = "call.pickle"
_CHUNK_BYTES = 1 << 16
# smddprun, which ends with this process: a notebook's kernel may be killed while a cell runs.
_LAUNCHER = (
    "import signal; from smddprun import __main__, signals; signals.end_with_parent(signal.SIGTERM); "
    "sys.exit(__main__.main())"
)
# First the front end, before anything of its framework is used.
_RANK = "import {front_end}; from smddprun import notebook_rank; notebook_rank.main({folder!r})"


class Failure(NamedTuple):
    """The report of a rank on the exception that has ended its function. The least one is the first."""

    follows: bool  # from the failure of another rank
    time_ns: int
    error: str  # as in "ValueError: no data"
    traceback: str


def run(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    np: int = 2,
) -> List[Any]:
    """Runs a function on new ranks of this host, and returns what it has returned on each.

        def train(epochs):
            sdp.init()
            ...
            return accuracy

        accuracies = sdp.run(train, args=(3,), np=2)

    It is for notebooks, where no script can be given to `smddprun`. Each rank is a process of its own, which
    smddprun starts, and which ends when the function does. It calls `init` itself, and imports what it needs:
    TensorFlow's objects of this process, such as a model, cannot go there. The ranks' output appears in
    `sys.stdout` as it comes, so in a notebook it is in the cell.

    The function, its arguments and its results are pickled with cloudpickle. So it may be one that a cell
    defines; global names that it uses are copied with their values. The call may be repeated.

    Args:
        function: what each rank calls.
        args: its positional arguments, the same on all ranks.
        kwargs: its arguments by name.
        np: the number of ranks.

    Returns:
        A list: the function's result on each rank, by rank.

    Raises:
        KeyboardInterrupt: by Ctrl-C, or by a notebook's interrupt; the ranks have ended then.
        RuntimeError: this process is a rank of a job itself; a rank's function has raised an exception (the
            text has the first rank's that did, with its traceback), or a rank has ended in another way.
        TypeError: `function` cannot be called, `np` is not an integer, or the function, an argument or a
            result cannot be pickled.
        ValueError: `np` is less than 1, or more than smddprun starts.
    """
    _check(function, np)
    try:
        call = cloudpickle.dumps((function, tuple(args), dict(kwargs or {})))
    except Exception as error:  # cloudpickle raises whatever an object's own methods raise
        raise TypeError(
            f"{library.front_end}.run() cannot send {_name_of(function)} or its arguments to the ranks: "
            f"{error}. Create what cannot be pickled (a model, a dataset, a lock) inside the function."
        ) from error
    with tempfile.TemporaryDirectory(prefix="tf_smddp-run-") as name:
        folder = pathlib.Path(name)
        (folder / CALL).write_bytes(call)
        rank_command = _python(_RANK.format(front_end=library.front_end, folder=name))
        exit_code = _launch([*_python(_LAUNCHER), "-np", str(np), *rank_command])
        _raise_first_failure(folder, np)
        missing = [rank for rank in range(np) if not _result(folder, rank).exists()]
        if exit_code or missing:
            where = f" Without a result: rank {', '.join(map(str, missing))}." if missing else ""
            raise RuntimeError(
                f"{library.front_end}.run(): the job has ended with exit code {exit_code}, without "
                f"an exception in {_name_of(function)}.{where} The output above says why: a signal, "
                "sys.exit() or os._exit()."
            )
        return [cloudpickle.loads(_result(folder, rank).read_bytes()) for rank in range(np)]


def _check(function: Any, np: Any) -> None:
    """Raises unless ranks can be started with these arguments from this process."""
    launcher = environment.outer_launcher(os.environ)
    if launcher is not None or (runtime.is_initialized() and runtime.size() > 1):
        found = f"{launcher}={os.environ[launcher]}" if launcher else f"rank {runtime.rank()}"
        raise RuntimeError(
            f"{library.front_end}.run() was called inside a rank of a job ({found}), which cannot start "
            "others. Call it in a process that is no rank, such as a notebook; or call the function itself, "
            "since the job has its ranks."
        )
    if not callable(function):
        raise TypeError(
            f"{library.front_end}.run() needs a function, but got {function!r}. Pass the function itself, "
            "and its arguments in args=(...), as in run(train, args=(3,))."
        )
    if isinstance(np, bool) or not isinstance(np, int):
        raise TypeError(
            f"{library.front_end}.run() needs an integer np, the number of ranks, but got {np!r}."
        )
    if not 1 <= np <= MAX_RANKS:
        raise ValueError(
            f"{library.front_end}.run() needs np from 1 to {MAX_RANKS}, the number of ranks, but got {np}."
        )


def _python(program: str) -> List[str]:
    """Returns the command that runs a program where it finds its modules as this process does."""
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"]


def _launch(command: List[str]) -> int:
    """Runs smddprun to its end, and writes its output as it comes. Returns its exit code.

    Raises:
        KeyboardInterrupt: after the ranks have ended.
    """
    # In this process's group: who kills a notebook's kernel kills its group, and then smddprun's guard ends
    # the ranks. An interrupt may reach smddprun twice, which it takes for one.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    interrupted = False
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with process.stdout as pipe:
        while True:
            try:
                chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
                sys.stdout.write(decoder.decode(chunk, final=not chunk))
                sys.stdout.flush()
                if not chunk:
                    exit_code = process.wait()
                    break
            except KeyboardInterrupt:  # a second one makes smddprun kill the ranks at once
                interrupted = True
                process.send_signal(signal.SIGINT)
            except BaseException:  # sys.stdout takes no more
                process.terminate()
                pipe.close()
                process.wait()
                raise
    if interrupted:
        raise KeyboardInterrupt
    return exit_code


def _raise_first_failure(folder: pathlib.Path, np: int) -> None:
    """Raises what the first rank has raised; returns if none has."""
    failures = []
    for rank in range(np):
        path = folder / f"failure.{rank}"
        if path.exists():
            failures.append((Failure(*pickle.loads(path.read_bytes())), rank))
    if failures:
        _raise(*min(failures))


def _raise(failure: Failure, rank: int) -> NoReturn:
    raise RuntimeError(
        f"{library.front_end}.run(): rank {rank} has raised {failure.error}\n\nrank {rank}'s traceback:\n"
        f"{failure.traceback.rstrip()}"
    )


def _result(folder: pathlib.Path, rank: int) -> pathlib.Path:
    return folder / f"result.{rank}"


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", repr(function))
