"""Ctrl-C while a collective waits for other ranks.

Place in the stack: the Python half of kernels/tf/interrupt.h, which withdraws the collectives. The op that
was waiting fails then, and here KeyboardInterrupt takes the place of its error.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any, Optional

# How far up an exception's constructor is looked for.
_MAX_FRAMES = 4


def take_over() -> bool:
    """Takes the place of Python's own handler.

    Returns:
        Whether it did: not if the script has another handler, or if this is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, _handle)
    return True


def give_back() -> None:
    """Puts Python's own handler back, unless someone has taken our place since."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is _handle:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle(signal_number: int, frame: Optional[FrameType]) -> None:
    # The first Python code that runs after a failed op makes its exception. TensorFlow's C++ has called it,
    # and takes a KeyboardInterrupt in there for a fault of its own. The next function that is called is
    # Python's again.
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
