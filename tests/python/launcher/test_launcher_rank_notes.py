"""The notes of ranks to the launcher: which one has failed first, and that they are ranks at all."""

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launcher_harness import SMDDPRUN, WITHOUT_PIDFD

from smddprun.rank_notes import JOINS, LEAVES, Note, RankNotes, parse

PROGRAMS = pytest.mark.parametrize("program", [SMDDPRUN, WITHOUT_PIDFD], ids=["pidfd", "sigchld"])

# A rank tells as tf_smddp does. `wait_for` another's file stands for what ranks learn of each other.
PREAMBLE = """
import os, pathlib, signal, sys, time
rank = int(os.environ["SMDDP_RANK"])

def tell(text):
    with open(os.environ["SMDDP_LAUNCHER"], "w") as fifo:
        fifo.write(text + "\\n")

def mark(name):
    pathlib.Path(name).touch()

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.005)

tell(f"joins {rank}")
"""

# Rank 1 has the cause in each, and its process is the last to end.
CAUSES = {
    "it is slow to end": (
        """
if rank == 1:
    tell("leaves 1"); mark("left"); time.sleep(1.5); os._exit(3)
wait_for("left"); tell(f"leaves {rank}"); os._exit(1)
""",
        3,
    ),
    "others tell before it": (
        """
if rank == 1:
    wait_for("left"); time.sleep(0.5); tell("leaves 1"); os._exit(3)
tell(f"leaves {rank} 1"); mark("left"); os._exit(1)
""",
        3,
    ),
    "others name each other on the way to it": (
        """
if rank == 1:
    wait_for("0"); wait_for("2"); time.sleep(0.5); os._exit(3)
tell("leaves 0 2" if rank == 0 else "leaves 2 1"); mark(str(rank)); os._exit(1)
""",
        3,
    ),
    "it is killed, and said nothing": (
        """
if rank == 1:
    wait_for("left"); os.kill(os.getpid(), signal.SIGKILL)
tell(f"leaves {rank} 1"); mark("left"); time.sleep(0.5); os._exit(1)
""",
        137,
    ),
}


@PROGRAMS
@pytest.mark.parametrize("case", CAUSES)
def test_the_rank_with_the_cause_is_named(launcher, case, program):
    script, code = CAUSES[case]
    launcher.script("train.py", PREAMBLE + script)
    result = launcher.run("-np", 3, "--grace", 60, "train.py", program=program)
    assert "rank 1 failed first" in result.messages
    assert result.code == code and result.messages.endswith(f"smddprun: exit code {code}\n")


def test_a_rank_that_leaves_is_not_ended_meanwhile(launcher):
    """TensorFlow takes seconds for its end on a busy machine: longer than the grace of the others."""
    script = """
if rank == 1:
    tell("leaves 1"); mark("left"); time.sleep(1.5); os._exit(3)
wait_for("left"); tell("leaves 0"); os._exit(1)
"""
    launcher.script("train.py", PREAMBLE + script)
    result = launcher.run("-np", 2, "--grace", 0, "train.py")
    assert result.code == 3 and "was ended by smddprun" not in result.messages


def test_ranks_that_name_each_other(launcher):
    launcher.script("train.py", PREAMBLE + "tell(f'leaves {rank} {1 - rank}'); os._exit(5)")
    result = launcher.run("-np", 2, "train.py")
    assert result.code == 5 and result.messages.count("failed first") == 1


def test_a_rank_that_left_well_is_not_to_blame(launcher):
    script = "tell(f'leaves {rank} 1' if rank != 1 else 'leaves 1'); os._exit(0 if rank == 1 else 7)"
    launcher.script("train.py", PREAMBLE + script)
    result = launcher.run("-np", 3, "train.py")
    assert result.code == 7 and "rank 1 failed first" not in result.messages


def test_nonsense_does_not_disturb(launcher):
    launcher.script(
        "train.py", PREAMBLE + "tell('\\xff leaves\\n\\nleaves\\nleaves 99\\nleaves x'); os._exit(rank)"
    )
    result = launcher.run("-np", 2, "train.py")
    assert result.code == 1 and "rank 1 failed first" in result.messages


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-np", 2, "train.py"], True),
        (["-np", 2, "-m", "train"], True),
        (["-np", 2, "-q", "train.py"], False),
        (["-np", 1, "train.py"], False),
        (["-np", 2, "joins.py"], False),
        (["-np", 2, "fails.py"], False),
        (["-np", 2, "true"], False),
        (["-np", 2, "sh", "-c", "true"], False),
    ],
)
def test_a_job_in_which_no_rank_joins_is_said(launcher, words, said):
    launcher.script("train.py", "")
    launcher.script("fails.py", "1 / 0")
    launcher.script("joins.py", PREAMBLE)
    result = launcher.run(*words)
    assert any("no rank has joined the job" in note for note in result.notes) == said, result.messages


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["true"], "since there is no -np; 'smddprun -np 2 ...' starts two"),
        (["-m", "train", "-np", "2"], "'-np' behind the command is the command's own"),
        (["-q", "true"], None),
        (["-np", 1, "true"], None),
        (["-H", "localhost:1", "true"], None),
    ],
)
def test_one_rank_for_lack_of_a_number_is_said(launcher, words, note):
    launcher.script("train.py", "")
    notes = [each for each in launcher.run(*words).notes if "note: 1 rank" in each]
    assert len(notes) == (0 if note is None else 1)
    assert all(note in each for each in notes)


def test_lines():
    text = b"joins 1\nleaves 1 \nleaves 0 1 \n"
    assert list(parse(text)) == [Note(JOINS, 1), Note(LEAVES, 1), Note(LEAVES, 0, 1)]


@given(st.binary() | st.text(st.sampled_from("joinslev 019\n"), max_size=40).map(str.encode))
def test_any_bytes(data):
    for note in parse(data):
        assert note.what in (JOINS, LEAVES) and note.rank >= 0


def test_a_fifo_without_a_note(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    notes = RankNotes(str(path))
    assert notes.read() == []
    pathlib.Path(path).write_text("joins 3\n")
    assert notes.read() == [Note(JOINS, 3)] and notes.read() == []
    notes.close()
