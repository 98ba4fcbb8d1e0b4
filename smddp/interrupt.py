"""Ctrl-C while a collective waits for other ranks.

Place in the stack: the Python part of kernels/process/interrupt.h, which withdraws the collectives. The
waiting op then fails, and this module raises KeyboardInterrupt in place of its error.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any, Optional

# How many frames are searched for the constructor of an exception.
_MAX_FRAMES = 4


def take_over() -> bool:
    """Replaces Python's own handler of SIGINT.

    Returns:
        True; False if the script has another handler, or if this is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, _handle)
    return True


def give_back() -> None:
    """Restores Python's own handler, unless another handler was installed since."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is _handle:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle(signal_number: int, frame: Optional[FrameType]) -> None:
    # The first Python code that runs after a failed op is the constructor of its exception. TensorFlow's C++
    # code has called it, and would take a KeyboardInterrupt there for an error of its own. So raise it in the
    # next function that Python code calls.
    if not _makes_an_exception(frame):
        signal.default_int_handler(signal_number, frame)
    profiler = sys.getprofile()

    def interrupt(caller: FrameType, event: str, argument: Any) -> None:
        if event == "call" and not _makes_an_exception(caller):
            sys.setprofile(profiler)
            signal.default_int_handler(signal_number, caller)

    sys.setprofile(interrupt)


def _makes_an_exception(frame: Optional[FrameType]) -> bool:
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), BaseException):
            return True
        frame = frame.f_back
    return False
