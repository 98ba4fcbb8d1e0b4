"""The life of this process's engine: init and shutdown, and who we are among the ranks."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from typing import Callable, List

from smddp import interrupt, library, process_manager, requests, settings, uncaught
from smddp.library import engine

_ERROR_BYTES = 4096
# How long the end of a process that has failed waits for callbacks of requests.
_CALLBACK_SECONDS = 5.0

_lock = threading.Lock()
# The process that called init(); None before. A fork()ed child inherits our memory but not the engine.
_owner_pid: int | None = None
# The process whose end is watched: the one that has called init() first, whether or not that succeeded.
_watched_pid: int | None = None
# Called before and after the engine has begun, and before and after it ends, for modules that do something.
before_init: List[Callable[[], None]] = []
after_init: List[Callable[[], None]] = []
before_shutdown: List[Callable[[], None]] = []
at_shutdown: List[Callable[[], None]] = []


def init() -> None:
    """Joins this process to its job. Call it once, at the start of the script.

    Collective: every rank must call this; it returns when all ranks of the job are there. The environment,
    which `smddprun` sets, describes the job; without it this process is rank 0 of 1. No device is created:
    `tf.config.set_visible_devices` and TensorFlow's threading options can still be set afterwards.

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
                f"init() called more than once: {library.front_end} is already initialized in this process. "
                "Call it once, at the start of the script. Where a notebook's cell may run again, ask "
                f"{library.front_end}.is_initialized() first."
            )
        _watch_the_end()
        for prepare in before_init:
            prepare()
        settings.keep_nccl_deterministic()
        try:
            with process_manager.running():
                library.check_in_thread(engine().smddp_init, *library.places())
        except RuntimeError as error:
            if _owner_pid is None or "SMDDP_RENDEZVOUS" not in os.environ:
                raise
            raise RuntimeError(
                f"{library.front_end}.init() was called after shutdown(), and could not join again: {error}. "
                "The rendezvous of smddprun serves one job. Call shutdown() only at the end, or leave it "
                "out; or first remove SMDDP_RENDEZVOUS from os.environ, and set SMDDP_JOB_ID to a new text, "
                "the same on all ranks."
            ) from error
        if interrupt.take_over() and engine().smddp_watch_interrupts() != 0:
            interrupt.give_back()  # the log says why
        _owner_pid = os.getpid()
        if rank() == 0:
            settings.warn_about_unknown(os.environ)
        for begin in after_init:
            begin()


def shutdown() -> None:
    """Leaves the job in an orderly way. Nothing happens before `init` or after an earlier `shutdown`.

    A collective that another rank starts, or has pending, without this rank ends with an error there. Called
    at the end of the process if the script does not.

    On one host it does not wait for the other ranks. The ranks of several hosts end together: it waits until
    all have called it, and says after 10 s for which ranks. It ends the job with an error when no rank has
    computed for `SMDDP_STALL_TIMEOUT`. Ctrl-C ends the wait, and the job.

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
            engine().smddp_stop_watching_interrupts()
            interrupt.give_back()
            try:
                library.check_in_thread(engine().smddp_shutdown)
            except KeyboardInterrupt:
                # The thread is still in there. The end of the job ends its wait for other hosts.
                engine().smddp_abort(f"rank {engine().smddp_rank()} was interrupted in shutdown()".encode())
                raise
            finally:
                for forget in at_shutdown:
                    forget()


def is_initialized() -> bool:
    """Whether `init` has succeeded and `shutdown` has not been called."""
    return bool(engine().smddp_is_initialized())


def rank() -> int:
    """This process's index among all ranks, from 0.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("rank")
    return int(engine().smddp_rank())


def size() -> int:
    """The number of ranks in the job.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("size")
    return int(engine().smddp_size())


def local_rank() -> int:
    """This process's index among the ranks of this host, from 0.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("local_rank")
    return int(engine().smddp_local_rank())


def local_size() -> int:
    """The number of ranks on this host.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    require_initialized("local_size")
    return int(engine().smddp_local_size())


def require_initialized(caller: str) -> None:
    """Raises a RuntimeError that names `caller` and the remedy, unless the engine runs."""
    if is_initialized():
        return
    us = library.front_end
    if _owner_pid is None:
        raise RuntimeError(
            f"{us}.{caller}() was called before init(). "
            f"Call {us}.init() once at the start of the script, before anything else of {us}."
        )
    raise RuntimeError(
        f"{us}.{caller}() was called after shutdown(). Call shutdown() only when nothing of {us} is "
        "needed any more, or leave it out: it is called at the end of the process."
    )


def _abort(text: str) -> None:
    engine().smddp_abort(text.encode("utf-8", errors="replace"))


def _abort_text() -> str:
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    engine().smddp_abort_text(text, _ERROR_BYTES)
    return library.text_of(text.value)


def _watch_the_end() -> None:
    """Sees to what happens when this process ends; before the first init() begins, since that may fail."""
    global _watched_pid
    if _watched_pid is not None:
        return
    _watched_pid = os.getpid()
    uncaught.tell_launcher("joins", _place())
    uncaught.watch(_place, _abort, _abort_text)
    # Registered after the framework's own handlers, so it runs before them: the framework is still whole.
    atexit.register(_at_exit)


def _place() -> int | None:
    """This process's rank; while it is not in the job, the one that smddprun has given it, if it has."""
    given = os.environ.get("SMDDP_RANK", "")
    return rank() if is_initialized() else int(given) if given.isdecimal() else None


def _at_exit() -> None:
    if os.getpid() != _watched_pid:
        return  # A fork()ed child ends; the parent's job goes on.
    error = uncaught.ended_by()
    # First, since the other ranks fail when they learn of this end.
    uncaught.tell_launcher("leaves", _place(), uncaught.blamed(error, _place()))
    if not is_initialized():
        return
    if error is not None:
        # No goodbye: to the other ranks this end must look like the failure that it is.
        _abort(uncaught.last_words(error, rank()))
        requests.wait_for_callbacks(_CALLBACK_SECONDS)
        return
    try:
        engine().smddp_note_script_end()
        shutdown()
    except RuntimeError as failure:
        print(f"{library.front_end}: shutdown() at the end of the process failed: {failure}", file=sys.stderr)
