"""The life of this process's engine: init and shutdown, and who we are among the ranks."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from typing import Any, Callable, List, Sequence

from tf_smddp import _interrupt, _library, _process_manager, _settings, _uncaught
from tf_smddp._autograph import not_converted

_ERROR_BYTES = 4096

_lib = _library.load()[1]
_lock = threading.Lock()
# The process that called init(); None before. A fork()ed child inherits our memory but not the engine.
_owner_pid: int | None = None
# The process whose end is watched: the one that has called init() first, whether or not that succeeded.
_watched_pid: int | None = None
# Called after the engine has begun, and before and after it ends, for modules that do something then.
after_init: List[Callable[[], None]] = []
before_shutdown: List[Callable[[], None]] = []
at_shutdown: List[Callable[[], None]] = []


def init() -> None:
    """Joins this process to its job. Call it once, at the start of the script.

    Collective: every rank must call this; it returns when all ranks of the job are there. The environment,
    which `smddprun` sets, describes the job; without it this process is rank 0 of 1. No TensorFlow device is
    created: `tf.config.set_visible_devices` and the threading options can still be set afterwards.

    At the end of the process `shutdown` is called for you, unless an uncaught exception ends it: then the job
    ends with an error on the other ranks, which names this rank and the exception.

    Rank 0 warns of environment variables that begin with `SMDDP_` and are none of ours.

    Called in the main thread, and with Python's own handler for SIGINT in place, it also sees to it that
    Ctrl-C ends a collective that waits for other ranks: it is withdrawn, fails on all ranks, and Python
    raises KeyboardInterrupt here. `shutdown` puts the handler back.

    Raises:
        RuntimeError: it was called before; the ranks could not be connected (the text says why); after
            `shutdown`, under `smddprun`, where a job has one rendezvous (the text says what to do).
    """
    global _owner_pid
    with _lock:
        if is_initialized():
            raise RuntimeError(
                "init() called more than once: tf_smddp is already initialized in this process. Call it "
                "once, at the start of the script. Where a notebook's cell may run again, ask "
                "tf_smddp.is_initialized() first."
            )
        _watch_the_end()
        try:
            with _process_manager.running(_lib):
                call_in_thread(_lib.smddp_init, _library.nccl_library().encode(), os.fsencode(sys.prefix))
        except RuntimeError as error:
            if _owner_pid is None or "SMDDP_RENDEZVOUS" not in os.environ:
                raise
            raise RuntimeError(
                f"tf_smddp.init() was called after shutdown(), and could not join again: {error}. The "
                "rendezvous of smddprun serves one job. Call shutdown() only at the end, or leave it out; or "
                "first remove SMDDP_RENDEZVOUS from os.environ, and set SMDDP_JOB_ID to a new text, the same "
                "on all ranks."
            ) from error
        _lib.tf_smddp_after_init()
        if _interrupt.take_over() and _lib.smddp_watch_interrupts() != 0:
            _interrupt.give_back()  # the log says why
        _owner_pid = os.getpid()
        if rank() == 0:
            _settings.warn_about_unknown(os.environ)
            _settings.warn_about_tf_config(os.environ)
        for begin in after_init:
            begin()


def shutdown() -> None:
    """Leaves the job in an orderly way. Nothing happens before `init` or after an earlier `shutdown`.

    A collective that another rank starts, or has pending, without this rank ends with an error there. Called
    at the end of the process if the script does not.

    On one host it does not wait for the other ranks. The ranks of several hosts end together: it waits until
    all have called it, says after 10 s for which ranks, and ends the job with an error after
    `SMDDP_STALL_TIMEOUT`. Ctrl-C ends the wait, and the job.

    Raises:
        RuntimeError: the engine could not end in order (the text says why).
    """
    with _lock:
        if not is_initialized():
            return
        try:
            for look in before_shutdown:
                look()
        finally:
            _lib.smddp_stop_watching_interrupts()
            _interrupt.give_back()
            try:
                call_in_thread(_lib.smddp_shutdown)
            except KeyboardInterrupt:
                # The thread is still in there. The end of the job ends its wait for other hosts.
                _lib.smddp_abort(f"rank {_lib.smddp_rank()} was interrupted in shutdown()".encode())
                raise
            finally:
                _lib.tf_smddp_after_shutdown()
                for forget in at_shutdown:
                    forget()


@not_converted
def is_initialized() -> bool:
    """Whether `init` has succeeded and `shutdown` has not been called."""
    return bool(_lib.smddp_is_initialized())


@not_converted
def rank() -> int:
    """This process's index among all ranks, from 0.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("rank")
    return int(_lib.smddp_rank())


@not_converted
def size() -> int:
    """The number of ranks in the job.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("size")
    return int(_lib.smddp_size())


@not_converted
def local_rank() -> int:
    """This process's index among the ranks of this host, from 0.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("local_rank")
    return int(_lib.smddp_local_rank())


@not_converted
def local_size() -> int:
    """The number of ranks on this host.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("local_size")
    return int(_lib.smddp_local_size())


def require_initialized(caller: str) -> None:
    """Raises a RuntimeError that names `caller` and the remedy, unless the engine runs."""
    if is_initialized():
        return
    if _owner_pid is None:
        raise RuntimeError(
            f"tf_smddp.{caller}() was called before init(). "
            "Call tf_smddp.init() once at the start of the script, before anything else of tf_smddp."
        )
    raise RuntimeError(
        f"tf_smddp.{caller}() was called after shutdown(). Call shutdown() only when nothing of tf_smddp is "
        "needed any more, or leave it out: it is called at the end of the process."
    )


def create_communicator(ranks: Sequence[int]) -> int:
    """Collective of all ranks: makes a communicator of `ranks`; returns its number."""
    array = (ctypes.c_int * len(ranks))(*ranks)
    number = ctypes.c_uint32()
    call_in_thread(_lib.smddp_create_communicator, array, len(ranks), ctypes.byref(number))
    return number.value


def remove_communicator(number: int) -> None:
    """Collective of all ranks: ends a communicator."""
    call_in_thread(_lib.smddp_remove_communicator, ctypes.c_uint32(number))


def leave_and_return(numbers: Sequence[int]) -> int:
    """Takes this rank out of these communicators until all their ranks have left; waits for that.

    Returns the rank that was the last to leave the first of them.
    """
    for number in numbers:
        call_in_thread(_lib.smddp_leave, ctypes.c_uint32(number))
    last = [ctypes.c_int() for _ in numbers]
    for number, rank_ in zip(numbers, last):
        call_in_thread(_lib.smddp_return, ctypes.c_uint32(number), ctypes.byref(rank_))
    return last[0].value


def call_in_thread(function: Callable[..., int], *arguments: Any) -> None:
    """As `call`, but in a thread, since Python handles Ctrl-C only between its own steps; for what waits.

    Where the system has no thread left, it is called all the same, and Ctrl-C has to wait.
    """
    failures: List[RuntimeError] = []

    def start() -> None:
        try:
            call(function, *arguments)
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=start, name="smddp-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        start()
    else:
        thread.join()
    if failures:
        raise failures[0]


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of the C API that returns an smddp_result; raises its error text."""
    _library.check_result(function(*arguments))


def _abort(text: str) -> None:
    _lib.smddp_abort(text.encode("utf-8", errors="replace"))


def _abort_text() -> str:
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    _lib.smddp_abort_text(text, ctypes.c_size_t(_ERROR_BYTES))
    return text.value.decode("utf-8", errors="replace")


def _watch_the_end() -> None:
    """Sees to what happens when this process ends; before the first init() begins, since that may fail."""
    global _watched_pid
    if _watched_pid is not None:
        return
    _watched_pid = os.getpid()
    _uncaught.tell_launcher("joins", _place())
    _uncaught.watch(_place, _abort, _abort_text)
    # Registered after TensorFlow's own handlers, so it runs before them: TensorFlow is still whole.
    atexit.register(_at_exit)


def _place() -> int | None:
    """This process's rank; while it is not in the job, the one that smddprun has given it, if it has."""
    given = os.environ.get("SMDDP_RANK", "")
    return rank() if is_initialized() else int(given) if given.isdecimal() else None


def _at_exit() -> None:
    if os.getpid() != _watched_pid:
        return  # A fork()ed child ends; the parent's job goes on.
    error = _uncaught.ended_by()
    # First, since the other ranks fail when they learn of this end.
    _uncaught.tell_launcher("leaves", _place(), _uncaught.blamed(error, _place()))
    if not is_initialized():
        return
    if error is not None:
        # No goodbye: to the other ranks this end must look like the failure that it is.
        _abort(_uncaught.last_words(error, rank()))
        return
    try:
        _lib.smddp_note_script_end()
        shutdown()
    except RuntimeError as failure:
        print(f"tf_smddp: shutdown() at the end of the process failed: {failure}", file=sys.stderr)
