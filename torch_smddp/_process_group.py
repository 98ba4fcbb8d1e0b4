"""The backend "smddp" of torch.distributed."""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import sys
import threading
from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from smddp import communicators
from torch_smddp._collectives import Collectives
from torch_smddp._messages import ANY, Messages
from torch_smddp._work import Completions, Several

_SHUTDOWN_SECONDS = 2.0


def _outside_of_graphs(group: Any) -> Any:
    """Keeps torch.compile() out of a class's methods, into which it cannot look."""

    def hide(method: Callable[..., Any]) -> Callable[..., Any]:
        hidden: List[Callable[..., Any]] = []

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if "torch._dynamo" not in sys.modules:  # its import takes seconds
                return method(*args, **kwargs)
            if not hidden:
                hidden.append(torch.compiler.disable(method))
            return hidden[0](*args, **kwargs)

        return call

    for name, method in [*vars(Collectives).items(), *vars(group).items()]:
        if inspect.isfunction(method) and (not name.startswith("_") or name.endswith("_base")):
            setattr(group, name, hide(method))
    return group


@_outside_of_graphs
class ProcessGroupSmddp(Collectives, dist.ProcessGroup):
    """Ranks of the job as one of torch's process groups. torch.distributed calls its methods."""

    def __init__(
        self, communicator: int, rank: int, ranks: Sequence[int], store: Any, timeout: datetime.timedelta
    ):
        """Takes a communicator of the engine.

        Args:
            communicator: its number.
            rank: this process's index among the members.
            ranks: the members' ranks in the job, ascending.
            store: torch's, for send() and recv().
            timeout: how long a collective or a message waits for other members; torch's default stands for
                SMDDP_STALL_TIMEOUT.
        """
        super().__init__(rank, len(ranks))
        self.communicator, self.ranks = communicator, list(ranks)
        self._index, self._members = rank, len(ranks)
        self._completions = Completions()
        self._messages = Messages(store, rank, len(ranks), timeout)
        self.timeout = 0.0 if timeout == default_pg_timeout else timeout.total_seconds()
        self._group_name = self._group_desc = ""
        self._coalesced = None

    # Without a backend in C++ the base class has nowhere to keep these.
    def getBackendName(self) -> str:
        """Returns the name of the backend."""
        return "smddp"

    def getRank(self) -> int:
        """Returns this process's index among the members."""
        return self._index

    def getSize(self) -> int:
        """Returns the number of members."""
        return self._members

    def setGroupName(self, name: str) -> None:
        """Keeps torch's name of the group."""
        self._group_name = name

    def getGroupName(self) -> str:
        """Returns torch's name of the group."""
        return self._group_name

    def setGroupDesc(self, text: str) -> None:
        """Keeps torch's description of the group."""
        self._group_desc = text

    def getGroupDesc(self) -> str:
        """Returns torch's description of the group."""
        return self._group_desc

    # torch asks a group's backend for a device what it can do. This group is its own backend.
    supports_splitting = supports_coalescing = supports_time_estimate = False

    def _get_backend(self, device: torch.device) -> ProcessGroupSmddp:
        return self

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    def shutdown(self) -> None:
        """Ends the group, after its works. The communicator of all ranks stays until the process ends.

        It waits for the other members for a short time only: one that has failed may never come here, and
        learns of a failure of this rank at the end of this process.
        """
        self._messages.close()
        thread = threading.Thread(target=self._end, name="torch_smddp-shutdown", daemon=True)
        thread.start()
        thread.join(_SHUTDOWN_SECONDS)

    def _end(self) -> None:
        self._completions.finish()
        if self.communicator == communicators.WORLD:
            return
        with contextlib.suppress(RuntimeError):  # members that have ended, or run something else
            communicators.remove_communicator(self.communicator)

    def abort(self) -> None:
        """Fails what is pending in the group, on all members."""
        communicators.fail(self.communicator, "torch.distributed aborted the process group")

    # ---- From one member to another ----

    def send(self, tensors: List[torch.Tensor], destination: int, tag: int) -> Any:
        """Sends a tensor to a member."""
        return self._messages.send(tensors[0], destination, tag)

    def recv(self, tensors: List[torch.Tensor], source: int, tag: int) -> Any:
        """Receives a tensor from a member."""
        return self._messages.recv(tensors[0], source, tag)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int) -> Any:
        """Receives a tensor from any member. All members must send or receive something in this group."""
        return self._messages.recv(tensors[0], ANY, tag)

    # ---- Several at once: torch's _coalescing_manager() with a device ----

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Any:
        works, self._coalesced = self._coalesced or [], None
        return Several(works, None)
