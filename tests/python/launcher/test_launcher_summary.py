"""The report at the end of a job, and the exit code."""

import signal

import pytest

from smddprun.ranks import Exit
from smddprun.summary import Ended, Outcome, lines

TERM, KILL, INT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT


def ended(rank, code=0, signal=0, by=0, tail=(), seconds=1.0):
    return Ended(rank, 1000 + rank, Exit(code, signal), seconds, by, tail)


def text(outcome):
    return b"\n".join(lines(outcome)).decode()


@pytest.mark.parametrize(
    "outcome,code",
    [
        (Outcome([ended(0), ended(1)]), 0),
        (Outcome([ended(0), ended(1, code=3)]), 3),
        (Outcome([ended(1, code=3), ended(0, code=4)]), 3),
        (Outcome([ended(1, signal=9), ended(0, code=1)]), 137),
        (Outcome([ended(1, signal=11), ended(0, signal=15, by=15)]), 139),
        (Outcome([ended(0, signal=15, by=15)], timeout=5.0), 124),
        (Outcome([ended(0, code=7), ended(1, signal=15, by=15)], timeout=5.0), 7),
        (Outcome([ended(0, signal=2), ended(1, signal=2)], stopped_by=INT), 130),
        (Outcome([ended(0, signal=9, by=9)], stopped_by=INT), 130),
        (Outcome([ended(0), ended(1)], stopped_by=TERM), 0),
        (Outcome([ended(0, signal=15), ended(1, code=1)], stopped_by=TERM), 143),
        (Outcome([ended(0, code=5)], stopped_by=TERM), 5),
        (Outcome([ended(0, code=2), Ended(1, 7, None, 9.0, KILL)]), 2),
    ],
)
def test_exit_code(outcome, code):
    assert outcome.exit_code == code
    assert (lines(outcome) == []) == (code == 0)
    if code:
        assert text(outcome).endswith(f"smddprun: exit code {code}")


def test_names_the_first_failure_and_its_consequences():
    outcome = Outcome(
        [
            ended(3),
            ended(1, signal=9, tail=[b"step 7", b"\xff bytes"], seconds=2.0),
            ended(0, code=1, seconds=2.4),
            ended(2, signal=15, by=15, seconds=7.0),
        ]
    )
    assert lines(outcome) == [
        b"smddprun: rank 1 failed first: pid 1001, killed by SIGKILL, after 2.0 s",
        b"smddprun: rank 3 had ended before, exit code 0, after 1.0 s",
        b"smddprun: the last lines of rank 1:",
        b"  | step 7",
        b"  | \xff bytes",
        b"smddprun: the kernel sends SIGKILL when memory runs out: look for 'Out of memory' in dmesg",
        b"smddprun: rank 0 (pid 1000) ended 0.4 s later: exit code 1",
        b"smddprun: rank 2 (pid 1002) was ended by smddprun with SIGTERM",
        b"smddprun: exit code 137",
    ]


def test_names_a_rank_that_left_and_whose_process_ended_a_little_later():
    failed = ended(0, code=1, tail=[b"why"], seconds=2.0)
    outcome = Outcome([failed, ended(2, code=1, seconds=2.1), ended(1, seconds=2.3), ended(3, seconds=2.4)])
    assert lines(outcome) == [
        b"smddprun: rank 0 failed first: pid 1000, exit code 1, after 2.0 s",
        b"smddprun: rank 1 (pid 1001) ended 0.3 s later: exit code 0",
        b"smddprun: the last lines of rank 0:",
        b"  | why",
        b"smddprun: rank 2 (pid 1002) ended 0.1 s later: exit code 1",
        b"smddprun: exit code 1",
    ]
    of_a_handler = Outcome([failed, ended(1, by=15, seconds=9.0)])
    assert "rank 1" not in text(of_a_handler)


def test_a_silent_rank():
    assert "rank 0 wrote no output" in text(Outcome([ended(0, code=1)]))


def test_another_rank_is_shown_where_the_first_wrote_nothing():
    shown = text(Outcome([ended(0, signal=9), ended(2), ended(1, code=1, tail=[b"why"])]))
    assert "rank 0 wrote no output\nsmddprun: the last lines of rank 1:\n  | why" in shown
    assert "had ended before" not in shown and "rank 2 (pid 1002) ended 0.0 s later: exit code 0" in shown


def test_a_rank_that_smddprun_had_to_end_is_named_by_those_that_blame_it():
    hung = ended(2, signal=9, by=9, tail=[b"a log line"], seconds=9.0)
    outcome = Outcome([blames(0, 2, code=4, tail=[b"[tf_smddp rank 0 error] why"], seconds=3.0), hung])
    assert lines(outcome) == [
        b"smddprun: rank 2 failed first: pid 1002, ended by smddprun with SIGKILL, after 9.0 s",
        b"smddprun: the last lines of rank 0:",
        b"  | [tf_smddp rank 0 error] why",
        b"smddprun: rank 0 (pid 1000) ended: exit code 4",
        b"smddprun: exit code 4",
    ]


def blames(rank, other, code=1, **more):
    return ended(rank, code=code, **more)._replace(because_of=other)


@pytest.mark.parametrize(
    "ranks,first",
    [
        ([blames(0, 2), blames(1, 2), ended(2, code=3)], 2),
        ([blames(0, 1), blames(1, 2), ended(2, code=3)], 2),
        ([blames(0, 1), ended(2, code=3), ended(1, code=4)], 1),
        ([blames(0, 1), ended(1)], 0),  # rank 1 ended well
        ([blames(0, 1), ended(1, signal=15, by=15)], 1),  # it took too long to end
        ([blames(0, 1), blames(1, 2), ended(2, signal=9, by=9)], 2),
        ([ended(0, code=3), ended(1, signal=15, by=15)], 0),
        ([blames(0, 1), blames(1, 0)], 0),
        ([blames(0, 1), blames(1, 2), blames(2, 1)], 0),
        ([blames(0, 0)], 0),
        ([blames(0, 77)], 0),
    ],
)
def test_the_rank_that_the_others_blame_failed_first(ranks, first):
    assert Outcome(ranks).first_failed.rank == first


def test_a_rank_that_says_why_is_shown_where_the_one_to_blame_ended_well():
    line = b"[tf_smddp rank 0 error] stopped, because of rank 1"
    why = b"[tf_smddp rank 2 error] rank 1 has ended"
    shown = text(Outcome([ended(1), blames(0, 1, tail=[line]), blames(2, 1, tail=[why])]))
    assert "rank 0 failed first" in shown and f"the last lines of rank 2:\n  | {why.decode()}" in shown


def test_a_stop_is_no_failure():
    shown = text(Outcome([ended(0, signal=2, tail=[b"x"]), ended(1, code=1)], stopped_by=INT))
    assert "told to stop by SIGINT" in shown and "failed" not in shown and "| x" not in shown
    assert (
        "rank 0 (pid 1000) ended: killed by SIGINT" in shown
        and "rank 1 (pid 1001) ended 0.0 s later" in shown
    )


def test_a_failure_after_a_stop_is_shown():
    shown = text(Outcome([ended(0, signal=11, tail=[b"x"])], stopped_by=TERM))
    assert "told to stop by SIGTERM" in shown and "rank 0 failed first" in shown and "| x" in shown


def test_timeout_and_stuck():
    shown = text(Outcome([ended(0, signal=15, by=15), Ended(1, 7, None, 9.0, KILL)], timeout=2.5))
    assert "--timeout 2.5 seconds" in shown and "rank 1 (pid 7) has not ended after SIGKILL" in shown


def test_many_ranks_are_counted():
    shown = text(Outcome([ended(0, code=1)] + [ended(r, code=1) for r in range(1, 100)]))
    assert "... and 83 ranks more" in shown and shown.count("\n") < 25


def test_a_signal_without_a_name():
    assert "killed by signal 40" in text(Outcome([ended(0, signal=40)]))
