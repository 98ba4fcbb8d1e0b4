"""Communicators: groups of ranks, each with an order of requests of its own.

The functions that wait here wait in a thread, so that Ctrl-C ends the wait in Python's main thread. None of
them may be called in a callback of `Request.submit`.
"""

from __future__ import annotations

import ctypes
from typing import Optional, Sequence

from smddp.library import check, check_in_thread, engine

WORLD = 0  # the communicator of all ranks


def create_communicator(ranks: Sequence[int]) -> int:
    """Makes a communicator, and returns its number, which is the same on all ranks.

    Collective of all ranks of the job, members or not, with the same ranks.

    Args:
        ranks: its members: ranks of the job, each once, in any order.

    Raises:
        RuntimeError: a rank does not exist, the ranks disagree, or there is no room for one more.
    """
    number = ctypes.c_uint32()
    array = (ctypes.c_int * len(ranks))(*ranks)
    check_in_thread(engine().smddp_create_communicator, array, len(ranks), ctypes.byref(number))
    return number.value


def create_communicator_among(ranks: Sequence[int], key: int) -> int:
    """Makes a communicator by its members alone, and returns its number, which is the same on all of them.

    Collective of the members, with the same arguments. Ranks that make several with each other make them in
    the same order, or in threads of their own.

    Args:
        ranks: its members: ranks of the job, each once, in any order; this rank is one of them.
        key: a number below 8388608 that no other communicator of the job has had, such as one that counts up
            in a store of the program's.

    Raises:
        RuntimeError: a rank does not exist, or this one is no member; the key is too large, or was used on
            this rank; the ranks disagree; or there is no room for one more.
    """
    number = ctypes.c_uint32()
    array = (ctypes.c_int * len(ranks))(*ranks)
    check_in_thread(engine().smddp_create_communicator_among, array, len(ranks), key, ctypes.byref(number))
    return number.value


def remove_communicator(communicator: int) -> None:
    """Ends a communicator. Collective of those who have made it: all ranks of the job, or its members.

    Raises:
        RuntimeError: it is `WORLD`, there is none of this number, or something is pending in it.
    """
    check_in_thread(engine().smddp_remove_communicator, communicator)


def communicator_rank(communicator: int) -> int:
    """Returns this process's index among the members, which are ordered by their ranks; -1 if it is none."""
    return int(engine().smddp_communicator_rank(communicator))


def communicator_size(communicator: int) -> int:
    """Returns the number of members; 0 if there is no such communicator."""
    return int(engine().smddp_communicator_size(communicator))


def leave_and_return(communicators: Sequence[int]) -> int:
    """Takes this rank out of communicators until all their members have left; waits for that.

    For ranks whose data ends early: requests of the others neither wait for this rank nor include it. All are
    members again when this returns.

    Returns:
        The rank of the job that was the last to leave the first of them.

    Raises:
        RuntimeError: a rank has ended without leaving, or the job has ended.
    """
    for communicator in communicators:
        check_in_thread(engine().smddp_leave, communicator)
    last = [ctypes.c_int() for _ in communicators]
    for communicator, rank in zip(communicators, last):
        check_in_thread(engine().smddp_return, communicator, ctypes.byref(rank))
    return last[0].value


def draw_ticket(communicator: int = WORLD) -> int:
    """Returns the ticket of the next group of requests: see `Request`.

    The n-th group of one rank meets the n-th one of the others. The callers' order is that of the groups.

    Raises:
        RuntimeError: this rank is no member, or an earlier step has failed on another rank.
    """
    ticket = ctypes.c_uint64()
    check(engine().smddp_draw_ticket(communicator, ctypes.byref(ticket)))
    return ticket.value


def fail(communicator: int, reason: str, ticket: Optional[int] = None) -> None:
    """Tells the members that this rank cannot do its part, so that they do not wait for it.

    Everything that is pending in the communicator fails on all ranks, with a text that names this rank and
    the reason. The next requests of all ranks meet again.

    Args:
        communicator: of the members.
        reason: the text.
        ticket: of the group that this rank cannot end; nothing happens when that has failed already, because
            of another rank.
    """
    text = reason.encode("utf-8", errors="replace")
    if ticket is None:
        engine().smddp_fail(communicator, text)
    else:
        engine().smddp_fail_group(communicator, ticket, text)
