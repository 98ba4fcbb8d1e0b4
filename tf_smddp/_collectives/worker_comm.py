"""get_worker_comm: what scripts use of an MPI communicator, over our own engine."""

from __future__ import annotations

from typing import Any, List, NoReturn, Optional

from smddp import runtime
from tf_smddp._collectives.barrier import barrier_op
from tf_smddp._collectives.broadcast import check_root
from tf_smddp._collectives.objects import NO_ROOT, Pattern, exchange
from tf_smddp._graphs.call_site import immediately


class WorkerComm:
    """All ranks of the job, with mpi4py's lower-case methods, which take and give Python objects.

    Its collectives follow the same rules as `broadcast_object` and `allgather_object`: every rank must call
    them, in the same order. They can raise what those do.
    """

    @property
    def rank(self) -> int:
        """This process's index among all ranks."""
        return runtime.rank()

    @property
    def size(self) -> int:
        """The number of ranks in the job."""
        return runtime.size()

    def Get_rank(self) -> int:
        """This process's index among all ranks."""
        return runtime.rank()

    def Get_size(self) -> int:
        """The number of ranks in the job."""
        return runtime.size()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Collective: returns the root's object, on every rank."""
        caller = "get_worker_comm().bcast"
        root = check_root(root, None, caller)
        return exchange(obj, Pattern.BROADCAST, root, caller, None, None)[root]

    def gather(self, obj: Any, root: int = 0) -> Optional[List[Any]]:
        """Collective: returns all ranks' objects, by rank, on the root; None on the others."""
        caller = "get_worker_comm().gather"
        root = check_root(root, None, caller)
        gathered = exchange(obj, Pattern.GATHER, root, caller, None, None)
        return list(gathered.values()) if runtime.rank() == root else None

    def allgather(self, obj: Any) -> List[Any]:
        """Collective: returns all ranks' objects, by rank, on every rank."""
        caller = "get_worker_comm().allgather"
        return list(exchange(obj, Pattern.ALLGATHER, NO_ROOT, caller, None, None).values())

    def barrier(self) -> None:
        """Collective: returns when every rank has come here; at once, in a v1 script too."""
        with immediately("get_worker_comm().barrier"):
            barrier_op("get_worker_comm().barrier", False, "SmddpBarrier")

    Barrier = barrier

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is not there: says what is."""
        there = ", ".join(sorted(each for each in dir(type(self)) if not each.startswith("_")))
        raise AttributeError(
            f"tf_smddp.get_worker_comm() is no MPI communicator and has no {name!r}, only: {there}. For "
            "tensors there are tf_smddp's own collectives, for other groups of ranks add_process_set()."
        )


_worker_comm = WorkerComm()


def get_worker_comm() -> WorkerComm:
    """All ranks of the job, as what scripts expect of an mpi4py communicator; MPI is not involved.

    Returns:
        An object with `gather`, `allgather`, `bcast`, `barrier`, `Barrier`, `Get_rank`, `Get_size`, `rank`
        and `size`.

    Raises:
        RuntimeError: before `init` or after `shutdown`.
    """
    runtime.require_initialized("get_worker_comm")
    return _worker_comm
