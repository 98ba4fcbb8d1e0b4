"""--timeline and --summary: what the launcher makes of what the ranks have written."""

import json

import pytest

from smddprun import reports

KIND = {"calls": 3, "bytes": 2_500_000, "staged_bytes": 0, "waiting_seconds": 0.5, "moving_seconds": 0.25}


def figures(waiting=0.5, **changes):
    kind = {**KIND, "waiting_seconds": waiting}
    return {
        "seconds": 10.0,
        "peak_memory_bytes": 1.5e9,
        "collectives": {"allreduce": kind, "barrier": kind},
        "process_sets": [{"steps": 40, "last_steps": 38, "step_seconds": 0.25, "blocked_seconds": 2.0}],
        **changes,
    }


def test_the_table_has_a_line_for_each_rank():
    lines = reports.table([figures(), None, figures()])
    assert lines[0].split() == [
        "rank",
        "seconds",
        "steps/s",
        "last",
        "blocked",
        "collectives",
        "sent",
        "waiting",
        "moving",
        "staged",
        "peak",
        "memory",
    ]
    assert " ".join(lines[1].split()) == "0 10.0 4.0 38 2.0 s 20% 6 5.0 MB 1.0 s 0.5 s 0% 1.5 GB"
    assert lines[2] == "   1   no figures: it did not reach tf_smddp.shutdown()"
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("waits", "last"), [([2.0, 0.1, 3.0], 1), ([1.0, 1.1, 1.2], None), ([0.01, 0.001], None), ([1.0], None)]
)
def test_the_rank_that_is_last_is_named(waits, last):
    notes = [
        line for line in reports.table([figures(waiting) for waiting in waits]) if "last to arrive" in line
    ]
    assert [line.split()[1] for line in notes] == ([] if last is None else [str(last)])
    assert all("last to arrive, in 38 of 40 steps: it has waited" in line for line in notes)


def test_a_job_without_steps_has_no_number_of_them():
    without = [{"steps": 0, "last_steps": 0, "step_seconds": 0.0, "blocked_seconds": 2.0}]
    table = reports.table([figures(waiting, process_sets=without) for waiting in (2.0, 0.1)])
    assert "rank 1 is the last to arrive: it has waited 0.2 s, the others 4.0 s" in table[-1], table


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[\n{"name": "a"},\n{"name": "b"}\n]', ["a", "b"]),
        ('[\n{"name": "a"},\n{"name": "b"}', ["a", "b"]),  # of a rank that was killed
        ('[\n{"name": "a"},\n{"name": "b", "ts"', ["a"]),
        ("", []),
    ],
)
def test_the_events_of_a_trace(text, names):
    assert [event["name"] for event in reports._events(text)] == names


def test_a_job_writes_both(launcher):
    program = (
        "import json, os, pathlib; rank = os.environ['SMDDP_RANK']\n"
        "of = lambda v: pathlib.Path(os.environ[v].replace('.json', f'.rank{rank}.json'))\n"
        f"of('SMDDP_SUMMARY').write_text(json.dumps({figures()!r}))\n"
        "of('SMDDP_TIMELINE').write_text(json.dumps([{'name': rank}]))\n"
    )
    script = launcher.script("report.py", program)
    result = launcher.run("-np", "2", "--summary", "--timeline", launcher.work / "all.json", script)
    assert result.code == 0, result.messages
    assert "rank   seconds  steps/s" in result.messages and "smddprun: timeline: " in result.messages
    assert [event["name"] for event in json.loads((launcher.work / "all.json").read_text())] == ["0", "1"]
    assert sorted(path.name for path in launcher.work.iterdir()) == ["all.json", "report.py"]


def test_a_job_that_fails_has_its_table_too(launcher):
    result = launcher.run("-np", "2", "--summary", "sh", "-c", "exit 3")
    assert result.code == 3
    assert result.messages.count("no figures: it did not reach tf_smddp.shutdown()") == 2, result.messages


def test_a_timeline_that_cannot_be_written(launcher):
    result = launcher.run("-np", "1", "--timeline", launcher.work / "none" / "all.json", "true")
    assert result.code == 0
    assert "cannot be written: No such file or directory" in result.messages, result.messages
