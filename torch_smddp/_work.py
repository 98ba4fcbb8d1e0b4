"""What torch's collectives return: works, which are waited for, and their futures."""

from __future__ import annotations

import atexit
import collections
import datetime
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, Optional, Sequence, Set

import torch
import torch.distributed as dist

from smddp import Operation

_POLL_SECONDS = 0.001
_CALLBACK_SECONDS = 5.0  # as long the end of the process waits for callbacks
_IDLE_SECONDS = 10.0  # then a thread that sets futures ends


class Work(dist._Work):
    """Requests of the engine that were started, and what is left to do on this rank when they have ended.

    torch calls no method but `wait` and `get_future` from C++.
    """

    def __init__(
        self,
        operation: Operation,
        result: Any,
        finish: Optional[Callable[[], None]],
        completions: Completions,
        keep: Any = None,
    ):
        """Takes over what was started.

        Args:
            operation: the requests.
            result: the tensors that the collective writes, as torch's future hands them out.
            finish: what is called once when the requests have ended, before anybody sees the result.
            completions: of the group; they keep the work until it has ended.
            keep: memory that the requests use, beside the result's.
        """
        super().__init__()
        self._operation, self._result, self._finish, self._keep = operation, result, finish, keep
        self._completions = completions
        self._lock = threading.Lock()
        self._ended, self._error = False, None
        self._future: Optional[torch.futures.Future] = None
        completions.keep(self)

    def _end(self) -> None:
        """Waits for the end, whatever it is; any thread, any number of times."""
        error = None
        try:
            self._operation.wait()
        except RuntimeError as failure:
            error = failure
        with self._lock:
            if self._ended:
                return
            if error is None and self._finish is not None:
                try:
                    self._finish()
                except RuntimeError as failure:
                    error = failure
            self._error = None if error is None else dist.DistBackendError(str(error))
            self._ended, self._keep = True, None
        self._completions.forget(self)

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Waits until the result is there.

        Args:
            timeout: raise after so long, with the collective still under way; 0: as long as it takes.

        Raises:
            torch.distributed.DistBackendError: the collective has failed (the text names the rank and the
                cause), or the time is over.
        """
        if timeout > datetime.timedelta(0):
            deadline = time.monotonic() + timeout.total_seconds()
            while not self._operation.test():
                if time.monotonic() > deadline:
                    raise dist.DistBackendError(
                        f"Timed out: the collective has not ended after {timeout.total_seconds():g} s, and "
                        "goes on. Perhaps a rank has not called it"
                    )
                time.sleep(_POLL_SECONDS)
        self._end()
        if self._error is not None:
            raise self._error
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        """Returns whether the result is there, or will never be. Does not wait."""
        if not self._ended and self._operation.test():
            self._end()
        return self._ended

    def is_success(self) -> bool:
        """Returns whether the result is there. Does not wait."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[BaseException]:
        """Returns why the collective has failed, if it has."""
        return self._error

    def result(self) -> Any:
        """Returns the tensors that the collective writes."""
        return self._result

    def get_future(self) -> torch.futures.Future:
        """Returns a future of the result, which is the same one each time."""
        with self._lock:
            if self._future is None:
                self._future, self._told = _future(self._result)
                self._completions.add(self)
            return self._future

    def tell_future(self) -> None:
        """Sets the future; its callbacks run in this thread."""
        # Python alone sees an exception of Future.set_exception: torch's C++ would take it for a result.
        self._told.set_result(self._result if self._error is None else self._error)


def _future(result: Any) -> Any:
    """Returns a future, and the one to be set with its result or an exception."""
    devices = sorted({each.device for each in _flat(result) if each.device.type != "cpu"}, key=str)
    told: torch.futures.Future = torch.futures.Future(devices=devices)

    def value(future: torch.futures.Future) -> Any:
        found = future.value()
        if isinstance(found, RuntimeError):
            raise found
        return found

    return told.then(value), told


def _flat(result: Any) -> Sequence[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [each for part in result or () for each in _flat(part)]


class Done(dist._Work):
    """A collective that has succeeded: what a synchronous call returns."""

    def __init__(self, result: Any):
        """Keeps the result."""
        super().__init__()
        self._result = result

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Returns True."""
        return True

    synchronize = is_completed = is_success = wait

    def exception(self) -> None:
        """Returns None."""

    def result(self) -> Any:
        """Returns the tensors that the collective has written."""
        return self._result

    def get_future(self) -> torch.futures.Future:
        """Returns a future that is done."""
        future, told = _future(self._result)
        told.set_result(self._result)
        return future


class Several(dist._Work):
    """Works as one, whose result is there when all of theirs are."""

    def __init__(self, works: Sequence[Any], result: Any):
        """Takes the works."""
        super().__init__()
        self._works, self._result = works, result

    def wait(self, *timeout: Any) -> bool:
        """Waits for all."""
        for each in self._works:
            each.wait(*timeout)
        return True

    def is_completed(self) -> bool:
        """Returns whether all have ended."""
        return all(each.is_completed() for each in self._works)

    def get_future(self) -> torch.futures.Future:
        """Returns a future of the result."""
        return torch.futures.collect_all([each.get_future() for each in self._works]).then(
            lambda _: self._result
        )


class Completions:
    """The works of a group that are under way. It keeps them, since the engine uses their memory.

    Futures are set in the order in which they were asked for. One thread at a time waits in the engine. The
    callbacks of a future may wait for a later work of the group, as those of torch's PowerSGD do, so another
    thread waits while they run.
    """

    def __init__(self) -> None:
        """Begins without a thread."""
        self._changed = threading.Condition()
        self._works: Deque[Work] = collections.deque()
        self._waits, self._idle = False, 0
        self._kept: Dict[Work, None] = {}  # in the order of their starts

    def keep(self, work: Work) -> None:
        """Keeps a work until it has ended, also if nobody waits for it and the group is gone."""
        with self._changed:
            self._kept[work] = None
            _busy.add(self)
            oldest = next(iter(self._kept))
        if oldest is not work:
            oldest.is_completed()

    def forget(self, work: Work) -> None:
        """Keeps it no longer."""
        with self._changed:
            self._kept.pop(work, None)
            if not self._kept:
                _busy.discard(self)

    def finish(self) -> None:
        """Waits until all works have ended, in whichever way."""
        with self._changed:
            works = list(self._kept)
        for work in works:
            work._end()

    def add(self, work: Work) -> None:
        """Has the work's future set when the work has ended."""
        _untold.add(work)
        with self._changed:
            self._works.append(work)
            self._wake()

    def _wake(self) -> None:
        if self._waits or not self._works:
            return
        if self._idle:
            self._changed.notify()
        else:
            self._idle += 1
            threading.Thread(target=self._run, name="torch_smddp-futures", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._waits or not self._works:
                    if not self._changed.wait(_IDLE_SECONDS) and not self._works:
                        self._idle -= 1
                        return
                self._idle, self._waits = self._idle - 1, True
                work = self._works.popleft()
            work._end()
            with self._changed:
                self._waits = False
                self._wake()
            work.tell_future()
            _untold.discard(work)
            with self._changed:
                self._idle += 1


_busy: Set[Completions] = set()  # those that keep works
_untold: Set[Work] = set()  # those whose futures are not set, or whose callbacks run


@atexit.register
def _wait_for_callbacks() -> None:
    """At the end of the process: a callback that is in torch's C++ code then would abort it."""
    deadline = time.monotonic() + _CALLBACK_SECONDS
    while _untold and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


os.register_at_fork(after_in_child=_untold.clear)  # the threads are the parent's
