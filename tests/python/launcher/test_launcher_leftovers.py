"""The search for processes that outlive the ranks, while such processes start and end."""

import os
import subprocess
import types
import uuid

import psutil
import pytest
from launcher_harness import alive, proc, wait_until
from marked_processes import kill

from smddprun.escalation import Escalation
from smddprun.leftovers import Sweep, describe, find, listed

# After a line of input it starts a process in a new session, and ends.
PARENT = "read; setsid sleep 100 > /dev/null & echo $!; exit"


@pytest.fixture
def job_id():
    return uuid.uuid4().hex


@pytest.fixture
def parent(job_id):
    process = subprocess.Popen(
        ["bash", "-c", PARENT],
        env={**os.environ, "SMDDP_JOB_ID": job_id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


def sweep_of(job_id):
    escalation = Escalation()
    escalation.begin(0.0, 0.0)
    return Sweep(job_id, set(), escalation)


def test_it_is_over_when_there_is_nobody(job_id):
    sweep = sweep_of(job_id)
    assert [sweep.turn(0.0), sweep.turn(0.01), sweep.turn(1.0)] == [False, False, True]
    assert not sweep.signalled and not sweep.remaining


def test_a_process_that_begins_while_it_looks_is_found(parent, job_id, monkeypatch):
    """The list of processes has only its parent, which has ended when the sweep examines it."""
    process_iter = psutil.process_iter
    children = []

    def list_then_let_the_parent_end():
        listed = list(process_iter())
        if not children:
            output, _ = parent.communicate("go\n")
            children.append(int(output))
            wait_until(lambda: proc(children[0], "comm") == b"sleep\n", "it is what it becomes")
        return listed

    monkeypatch.setattr(psutil, "process_iter", list_then_let_the_parent_end)
    sweep = sweep_of(job_id)
    try:
        assert not sweep.turn(0.0) and not sweep.remaining
        assert not sweep.turn(1.0)
        assert [process.pid for process in sweep.remaining] == children
        wait_until(lambda: not alive(children[0]), "it is ended")
        assert [sweep.turn(2.0), sweep.turn(3.0)] == [False, True]
        assert sweep.signalled == [f"{children[0]} (sleep 100)"]
    finally:
        if children and alive(children[0]):
            kill(children[0])


class Pretended:
    """A process of psutil's."""

    pid = 1

    def __init__(self, job_id, uid=0, cmdline=()):
        self._job_id, self._uid, self._cmdline = job_id, uid, list(cmdline)

    def environ(self):
        return {"SMDDP_JOB_ID": self._job_id}

    def uids(self):
        return types.SimpleNamespace(real=self._uid)

    def status(self):
        return psutil.STATUS_RUNNING

    def cmdline(self):
        return self._cmdline


def test_another_users_process_is_not_the_jobs(monkeypatch):
    """Root can read its environment, in which anybody may put the job's id."""
    mine, others = Pretended("id", os.getuid()), Pretended("id", os.getuid() + 1)
    monkeypatch.setattr(psutil, "process_iter", lambda: iter([mine, others]))
    assert find("id", set()) == [mine]
    assert find("id", {os.getsid(1)}) == [mine, others]


def test_control_characters_are_not_written():
    assert describe(Pretended("id", cmdline=["a\x1b]0;owned\x07", "é\n"])) == "1 (a?]0;owned? é?)"
    assert len(describe(Pretended("id", cmdline=["a" * 1000]))) < 90


def test_many_processes_are_counted():
    assert listed(["1 (a)", "2 (b)"]) == "1 (a), 2 (b)"
    assert listed([str(i) for i in range(49)]).endswith("8, 9 and 39 more")
