"""The uncaught exception that ends a rank: what it prints, and what the launcher and the other ranks learn.

When one rank fails, all do. The one with the cause prints its traceback, as Python does. A rank whose
collective has failed for that prints one line, which names the other rank; the text of the engine's error is
all that it knows, and begins with the rank that has the cause, or names it first.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

# The path of the FIFO in which the launcher reads what ranks tell it; smddprun/rank_notes.py has the lines.
LAUNCHER = "SMDDP_LAUNCHER"
_MAX_REASON_CHARACTERS = 1000
_MAX_SHORT_CHARACTERS = 200

# The text of the engine on a collective that has failed, also in an error of TensorFlow's.
_FAILED = re.compile(
    r"(?:^|\}\} |\n)(?P<what>(?:allreduce|broadcast|barrier|allgather|reducescatter|alltoall|process set)\b"
    r"[^\n]*? failed: )"
)
# The text of a step that cannot begin; all ops of ours have this name.
_NOT_BEGUN = re.compile(r"(?:^|\}\} |\n)(?P<what>)(?=(?:on )?rank \d)")
_OP = "Smddp"
_RANK = re.compile(r"\brank (\d+)\b")
# Text that TensorFlow appends.
_APPENDED = re.compile(r"\n\s*\[\[| \[Op:")
_LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]|^<")
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The folders of this package, of the launcher, which runs functions of notebooks, and of the front ends.
_OURS: Tuple[str, ...] = tuple(os.path.join(_PACKAGES, name, "") for name in ("smddp", "smddprun"))
# The classes of errors in which frameworks hand on the engine's.
_OF_FRAMEWORKS: Tuple[type, ...] = ()


class Cause(NamedTuple):
    """The parts of the text of the engine's error."""

    what: str  # the collective that has failed, or nothing
    why: str
    rank: int  # the first one that it names

    @property
    def names_the_culprit(self) -> bool:
        """Whether the text begins with a rank; otherwise it tells in what ranks differ."""
        return re.match(r"(on )?rank \d", self.why) is not None


class Verdict(NamedTuple):
    """The facts that the rank finds out about the error that ends it."""

    error: BaseException
    culprit: Optional[int]  # the other rank that is to blame
    is_known: bool  # whether another rank, or the engine's log, says why


_verdict: Optional[Verdict] = None


def know_front_end(folder: str, *errors: type) -> None:
    """Tells where the code of a front end lies, and in which errors its framework hands on the engine's.

    A RuntimeError that code in the folder raises is known by that.
    """
    global _OURS, _OF_FRAMEWORKS
    _OURS += (os.path.join(os.path.abspath(folder), ""),)
    _OF_FRAMEWORKS += errors


def cause_of(error: BaseException) -> Optional[Cause]:
    """Returns what the engine says in an error that it has raised; None for any other error."""
    if isinstance(error, _OF_FRAMEWORKS):
        text = str(getattr(error, "message", error))
        found = _FAILED.search(text) or (_NOT_BEGUN.search(text) if _OP in text else None)
    elif isinstance(error, RuntimeError) and _raised_by_us(error.__traceback__):
        text = str(error)
        found = _FAILED.search(text) or _NOT_BEGUN.match(text)
    else:
        return None
    if found is None:
        return None
    why = _APPENDED.split(text[found.end() :], maxsplit=1)[0].rstrip()
    rank = _RANK.search(why)
    return None if rank is None else Cause(found["what"], why, int(rank[1]))


def _raised_by_us(trace: Optional[TracebackType]) -> bool:
    frames = traceback.extract_tb(trace)
    return bool(frames) and frames[-1].filename.startswith(_OURS)


def blamed(error: Optional[BaseException], rank: Optional[int]) -> Optional[int]:
    """Returns the other rank because of which this one fails, if an error or one of its causes names it."""
    if _verdict is not None and _verdict.error is error:
        return _verdict.culprit
    causes = filter(None, map(cause_of, _chain(error)))
    return next((each.rank for each in causes if each.names_the_culprit and each.rank != rank), None)


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    seen: List[BaseException] = []
    while error is not None and not any(error is each for each in seen):
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def tell_launcher(what: str, *ranks: Optional[int]) -> None:
    """Writes a line for smddprun, if that has started this process.

    Args:
        what: what happens.
        ranks: this rank, if it is known, and the one to blame, if there is one.
    """
    path = os.environ.get(LAUNCHER)
    numbers = [str(rank) for rank in ranks if rank is not None]
    if not path or not numbers:
        return
    try:
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # another launcher's process has inherited the variable, or smddprun has ended
    try:
        os.write(fifo, " ".join([what, *numbers, "\n"]).encode())
    except OSError:
        return  # smddprun has ended just now, or reads nothing: then it learns of the end all the same
    finally:
        os.close(fifo)


def ended_by() -> Optional[BaseException]:
    """Returns the uncaught exception that is ending this process, if there is one.

    The interpreter itself sets sys.last_value before it prints the traceback of an uncaught exception; unlike
    sys.excepthook it cannot be displaced by another library's hook. sys.exit() does not set it. An
    interactive session sets it for every error that its user has seen and gone on from, so it says nothing
    there.
    """
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return None if interactive else getattr(sys, "last_value", None)


def _describe(error: BaseException) -> str:
    """The exception's type and text, without its middle if it is too long.

    TensorFlow's errors begin with the place in the program, and end with the cause.
    """
    cause = cause_of(error)
    text = f"{type(error).__name__}: {error if cause is None else cause.what + cause.why}".rstrip(": ")
    if len(text) <= _MAX_REASON_CHARACTERS:
        return text
    return f"{text[:100]} [...] {text[100 - _MAX_REASON_CHARACTERS :]}"


def last_words(error: BaseException, rank: int) -> str:
    """Returns the text with which an uncaught exception ends the job."""
    return f"rank {rank} ended with an uncaught {_describe(error)}"


def watch(
    rank_of_this: Callable[[], Optional[int]], abort: Callable[[str], None], abort_text: Callable[[], str]
) -> None:
    """Has the errors of the engine, and of this package, print what this rank has to say of them.

    Args:
        rank_of_this: returns this rank, if it is known.
        abort: ends the job for all ranks with a text, unless it has ended.
        abort_text: returns the text with which the job has ended; else nothing.
    """
    previous = sys.excepthook

    def hook(kind: Any, error: BaseException, trace: Optional[TracebackType]) -> None:
        global _verdict
        rank, cause = rank_of_this(), cause_of(error)
        ours = cause is not None or _raised_by_us(trace)
        if rank is None or not ours or ended_by() is not error:
            return previous(kind, error, trace)
        if cause is None or not cause.names_the_culprit:
            # All ranks have the same error, and the first one writes it. They may end before this one has.
            tell_launcher("leaves", rank)
            abort(last_words(error, rank))
        _verdict = _judge(error, cause, rank, abort_text())
        text = _text(_verdict, cause, rank)
        if text is None or os.environ.get("SMDDP_LOG_LEVEL", "") in ("info", "debug"):
            return previous(kind, error, trace)
        print(text, file=sys.stderr, flush=True)

    sys.excepthook = hook


def _judge(error: BaseException, cause: Optional[Cause], rank: int, abort_text: str) -> Verdict:
    if cause is not None and cause.names_the_culprit:
        is_known = bool(abort_text) and abort_text[:_MAX_SHORT_CHARACTERS] in str(error)
        return Verdict(error, None if cause.rank == rank else cause.rank, is_known)
    is_another = cause is None and str(error)[:_MAX_SHORT_CHARACTERS] not in abort_text
    if abort_text in ("", last_words(error, rank)) or is_another:
        return Verdict(error, None, False)
    # A rank that has waited for others is not to blame.
    named = re.match(r"rank (\d+)\b(?! waited)", abort_text)
    return Verdict(error, int(named[1]) if named and int(named[1]) != rank else None, True)


def _text(verdict: Verdict, cause: Optional[Cause], rank: int) -> Optional[str]:
    """Returns what is printed in place of the traceback; None for an error that is not the engine's."""
    trace = traceback.extract_tb(verdict.error.__traceback__)
    frames = [frame for frame in trace if not _of_a_library(frame.filename)]
    if verdict.culprit is None and not verdict.is_known:
        if cause is None:
            return None
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
        return "".join(lines) + f"{type(verdict.error).__name__}: {cause.what}{cause.why}"
    text = f"[tf_smddp rank {rank} error] stopped"
    if frames:
        text += f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}"
    if cause is not None and not verdict.is_known:
        return f"{text}: {_short(cause.why)}"
    return text if verdict.culprit is None else f"{text}, because of rank {verdict.culprit}"


def _of_a_library(path: str) -> bool:
    return path.startswith(_OURS) or _LIBRARIES.search(path) is not None


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _MAX_SHORT_CHARACTERS else f"{line[:_MAX_SHORT_CHARACTERS]}..."
