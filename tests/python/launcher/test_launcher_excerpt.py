"""The last lines of a rank in the report."""

from smddprun.excerpt import MAX_LINES, excerpt

TRACEBACK = b"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 14, in <module>
    model.fit(data)
  File "/venv/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py", line 70, in error_handler
    raise e.with_traceback(filtered_tb) from None
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3/dist-packages/other.py", line 3, in run
  File "/home/me/model.py", line 5, in call
    return x / 0
           ~~^~~

ZeroDivisionError: division by zero""".split(b"\n")


def test_frames_of_packages_and_blank_lines_are_left_out():
    assert excerpt(TRACEBACK) == [
        b"Traceback (most recent call last):",
        b'  File "/home/me/train.py", line 14, in <module>',
        b"    model.fit(data)",
        b'  File "/home/me/model.py", line 5, in call',
        b"    return x / 0",
        b"           ~~^~~",
        b"ZeroDivisionError: division by zero",
    ]


def test_the_engine_has_the_last_word():
    ours = b"[tf_smddp rank 1 error] rank 0 was killed"
    assert excerpt([b"a", ours, b"b"]) == [b"a", b"b", ours]


def test_the_last_lines_are_kept():
    lines = [b"%d" % i for i in range(100)]
    assert excerpt(lines) == lines[-MAX_LINES:]
    ours = b"[tf_smddp rank 1 error] x"
    assert excerpt([ours, *lines]) == [*lines[-MAX_LINES + 1 :], ours]


def test_lines_that_are_no_traceback_stay():
    lines = [b"  indented", b"    more", b"File missing", b"\xff\xfe"]
    assert excerpt(lines) == lines
    assert excerpt([b"", b"  ", b"\t"]) == []


def test_lines_of_tensorflows_log_are_left_out():
    lines = [
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        b"I0000 00:00:1795766595.395555   19016 port.cc:153] oneDNN custom operations are on.",
        b"2026-11-27 08:00:00.000000: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on.",
        b"W0000 00:00:1795769227.139159    2423 local_rendezvous.cc:412] Local rendezvous is aborting with",
    ]
    errors = [b"E0000 00:00:1795766595.395555   19016 cuda.cc:1] no device", b"I0 is the current"]
    assert excerpt([*lines, *errors]) == errors
