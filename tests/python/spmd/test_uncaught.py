"""The texts of errors name their cause. test_culprits.py has what jobs make of it."""

import types

import pytest
import tensorflow as tf

import tf_smddp as sdp
from smddp import library, uncaught

pytestmark = pytest.mark.one_tensorflow

WHAT = "allreduce 'weight/0' average float32 [3], parameter 0 of 1 failed: "
KILLED = "rank 1 (pid 7) was killed by signal 9 (SIGKILL)"
DISAGREE = (
    "the ranks run different collectives in group execution 0 (counted from 0): rank 2 has a; rank 0 has b"
)


def internal(text):
    return tf.errors.InternalError(None, None, text)


@pytest.mark.parametrize(
    ("text", "what", "why", "rank"),
    [
        (
            f"{{{{function_node __wrapped__SmddpAllreduce_device_CPU}}}} {WHAT}{KILLED} [Op:SmddpAllreduce]",
            WHAT,
            KILLED,
            1,
        ),
        (
            f"Graph execution error:\n\nDetected at node x (most recent call last):\n{WHAT}{KILLED}\n"
            "\t [[SmddpAllreduce]] [Op:__inference_step_37]",
            WHAT,
            KILLED,
            1,
        ),
        (f"{WHAT}{DISAGREE}", WHAT, DISAGREE, 2),
        ("{{node SmddpTicket}} rank 3 withdrew barrier: Ctrl-C", "", "rank 3 withdrew barrier: Ctrl-C", 3),
        ("{{node SmddpTicket}} on rank 3, no room", "", "on rank 3, no room", 3),
        (f"process set failed: {KILLED}", "process set failed: ", KILLED, 1),
    ],
)
def test_the_engines_errors(text, what, why, rank):
    assert uncaught.cause_of(internal(text)) == (what, why, rank)


@pytest.mark.parametrize(
    "error",
    [
        internal("assertion failed: [x must have rank 2]"),
        internal("rank 2 expected"),
        internal(f"{WHAT}no rank is to blame"),
        ValueError(f"{WHAT}{KILLED}"),
        RuntimeError(KILLED),
    ],
    ids=str,
)
def test_other_errors(error):
    assert uncaught.cause_of(error) is None


def test_an_error_of_a_call(monkeypatch):
    lib = types.SimpleNamespace(smddp_last_error=lambda: b"rank 1 failed in init(): no memory")
    monkeypatch.setattr(library, "engine", lambda: lib)
    with pytest.raises(RuntimeError) as raised:
        library.check(3)
    assert uncaught.cause_of(raised.value) == ("", "rank 1 failed in init(): no memory", 1)


def test_who_is_to_blame():
    error = internal(WHAT + KILLED)
    assert uncaught.blamed(error, 0) == 1
    assert uncaught.blamed(error, 1) is None
    assert uncaught.blamed(internal(WHAT + DISAGREE), 0) is None  # all are alike, until one has ended the job
    wrapper = ValueError("training failed")
    wrapper.__cause__ = error
    assert uncaught.blamed(wrapper, 0) == 1
    error.__context__ = wrapper  # a circle
    assert uncaught.blamed(ValueError(), 0) is None and uncaught.blamed(None, 0) is None


STALL = "no progress for 4.0 s (SMDDP_STALL_TIMEOUT): rank 2 has waited 4.5 s for rank 1 at allreduce 'w'."


@pytest.mark.parametrize(
    ("text", "job_ended_with", "culprit", "is_known"),
    [
        (KILLED, KILLED, 1, True),
        (KILLED, "", 1, False),
        ("rank 0 could not run it", "", None, False),
        (DISAGREE, "", None, False),
        (DISAGREE, f"rank 0 ended with an uncaught InternalError: {WHAT}{DISAGREE}", None, False),
        (DISAGREE, f"rank 2 ended with an uncaught InternalError: {WHAT}{DISAGREE}", 2, True),
        (STALL, STALL, None, True),
    ],
)
def test_who_writes_the_cause(text, job_ended_with, culprit, is_known):
    error = internal(WHAT + text)
    verdict = uncaught._judge(error, uncaught.cause_of(error), 0, job_ended_with)
    assert (verdict.culprit, verdict.is_known) == (culprit, is_known)


def test_an_error_of_this_package_that_all_ranks_have():
    error = ValueError("rank 0 has ['val_loss'], which not all ranks have")
    for text, culprit, is_known in (
        ("", None, False),
        (f"rank 0 ended with an uncaught ValueError: {error}", None, False),
        (f"rank 2 ended with an uncaught ValueError: {error}", 2, True),
        ("rank 2 ended with an uncaught ValueError: another one", None, False),
    ):
        verdict = uncaught._judge(error, None, 0, text)
        assert verdict == (error, culprit, is_known)
        written = uncaught._text(verdict, None, 0)
        assert written == ("[tf_smddp rank 0 error] stopped, because of rank 2" if is_known else None)


def test_what_is_written_in_place_of_a_traceback():
    try:
        raise internal(WHAT + KILLED)
    except tf.errors.InternalError as failure:
        error = failure
    cause = uncaught.cause_of(error)

    def text(culprit, is_known):
        return uncaught._text(uncaught.Verdict(error, culprit, is_known), cause, 0)

    begin = "[tf_smddp rank 0 error] stopped in test_uncaught.py, line "
    assert text(1, True).startswith(begin) and text(1, True).endswith(", because of rank 1")
    assert text(1, False).startswith(begin) and text(1, False).endswith(f": {KILLED}")
    assert text(None, True).startswith(begin) and text(None, True)[len(begin) :].isdecimal()
    own = text(None, False).splitlines()
    assert own[0] == "Traceback (most recent call last):" and own[-1] == f"InternalError: {WHAT}{KILLED}"
    assert len(own) <= 4


def test_the_launcher_may_have_gone(tmp_path, monkeypatch):
    for path in (tmp_path / "nowhere", tmp_path):
        monkeypatch.setenv(uncaught.LAUNCHER, str(path))
        uncaught.tell_launcher("leaves", sdp.rank())
