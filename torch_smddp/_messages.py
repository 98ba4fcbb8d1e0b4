"""Messages from one member of a process group to another: send() and recv(), by Gloo."""

from __future__ import annotations

import concurrent.futures
import datetime
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

ANY = -1  # the source that stands for each of the members
_CLOSE_SECONDS = 2.0  # as long close() waits for threads


class Messages:
    """The messages of a process group. Two members connect when they first talk; no other one takes part.

    Gloo waits for the other member while it connects, so each pair of members has a thread, which hands the
    messages to Gloo in their order.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta):
        """Prepares; nothing is connected.

        Args:
            store: torch's, where the members find each other.
            rank: this process's index among the members.
            size: their number.
            timeout: for which a message waits for the other member.
        """
        self._lock = threading.Lock()
        self._make_gloo = lambda: _gloo(store, rank, size, timeout)
        self._gloo: Any = None
        self._queues: Dict[int, queue.SimpleQueue[Optional[Tuple[Message, Callable[[], Any]]]]] = {}
        self._threads: List[threading.Thread] = []

    def send(self, tensor: torch.Tensor, destination: int, tag: int) -> Message:
        """Sends a tensor. Raises as `recv`."""
        return self._start(destination, tensor, lambda gloo: gloo.send([tensor], destination, tag))

    def recv(self, tensor: torch.Tensor, source: int, tag: int) -> Message:
        """Receives a tensor of the same size and dtype; ANY as source takes the first one that comes.

        Raises:
            TypeError: it is no contiguous tensor in the CPU's memory.
        """
        if source == ANY:
            return self._start(source, tensor, lambda gloo: gloo.recv_anysource([tensor], tag))
        return self._start(source, tensor, lambda gloo: gloo.recv([tensor], source, tag))

    def close(self) -> None:
        """Ends the connections, and the threads that do not wait for another member."""
        with self._lock:
            for each in self._queues.values():
                each.put(None)
            # Gloo is destroyed here: in a thread, at the end of Python, that would abort the process.
            gloo, threads = self._gloo, self._threads
            self._queues, self._threads, self._gloo = {}, [], None
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        del gloo

    def _start(self, peer: int, tensor: torch.Tensor, call: Callable[[Any], Any]) -> Message:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.is_contiguous():
            raise TypeError(
                "send() and recv() of the backend smddp take contiguous tensors in the CPU's memory, but got "
                f"one on {tensor.device}, of the layout {tensor.layout}, with the strides {tensor.stride()}; "
                "use tensor.cpu().contiguous()"
            )
        message = Message(tensor)
        with self._lock:
            if self._gloo is None:
                self._gloo = self._make_gloo()  # type: ignore[no-untyped-call]
            if peer not in self._queues:
                self._queues[peer] = queue.SimpleQueue()
                thread = threading.Thread(target=_hand_over, args=(self._queues[peer],), daemon=True)
                self._threads.append(thread)
                thread.start()
            gloo = self._gloo
            self._queues[peer].put((message, lambda: call(gloo)))
        return message


def _gloo(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    options = ProcessGroupGloo._Options()
    options._devices = [ProcessGroupGloo.create_default_device(lazy_init=True)]
    options._timeout = timeout
    return ProcessGroupGloo(dist.PrefixStore("smddp/messages", store), rank, size, options)


def _hand_over(messages: Any) -> None:
    for message, call in iter(messages.get, None):
        message.begin(call)


class Message(dist._Work):
    """A message under way."""

    def __init__(self, tensor: torch.Tensor):
        """Keeps the tensor."""
        super().__init__()
        self._tensor = tensor
        self._begun: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def begin(self, call: Callable[[], Any]) -> None:
        """Hands the message to Gloo."""
        try:
            self._begun.set_result(call())
        except RuntimeError as error:
            self._begun.set_exception(dist.DistBackendError(str(error)))

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Waits until the tensor has been sent, or is there; of a timeout for Gloo, 0 is the group's.

        Raises:
            RuntimeError: the other member has gone, or has not come in time.
        """
        return self._begun.result().wait(timeout)

    synchronize = wait

    def is_completed(self) -> bool:
        """Returns whether it has been sent, or has come. Does not wait."""
        return self._begun.done() and (
            self._begun.exception() is not None or self._begun.result().is_completed()
        )

    def result(self) -> Any:
        """Returns the tensor, as a list."""
        return [self._tensor]

    def _source_rank(self) -> int:
        return self._begun.result()._source_rank()

    source_rank = _source_rank
