"""The counts of run_tests.py: a test that failed, hung or vanished anywhere is never a passed one."""

import json

import pytest
from test_results import (
    Case,
    Result,
    merge_ranks,
    print_failures,
    print_table,
    read_bazel_events,
    read_junit,
    totals,
)

PASSED, FAILED, SKIPPED = Case("passed", 1.0), Case("failed", 2.0), Case("skipped")


def junit(path, cases):
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return path


def test_a_report_of_pytest(tmp_path):
    path = junit(
        tmp_path / "report.xml",
        '<testcase classname="m" name="a" time="1.5"/>'
        '<testcase classname="m" name="b"><skipped/></testcase>'
        '<testcase classname="m" name="c"/><testcase classname="m" name="c"><error/></testcase>',
    )
    assert read_junit(path) == {"m.a": Case("passed", 1.5), "m.b": Case("skipped"), "m.c": Case("failed")}


@pytest.mark.parametrize("text", ["", "<testsuites><testsuite>"])
def test_a_report_that_was_cut_short_is_none(tmp_path, text):
    (tmp_path / "report.xml").write_text(text)
    assert read_junit(tmp_path / "report.xml") is None
    assert read_junit(tmp_path / "no such file.xml") is None


@pytest.mark.parametrize(
    ("reports", "outcomes"),
    [
        ([{"a": PASSED}, {"a": PASSED}], {"a": "passed"}),
        ([{"a": PASSED}, {"a": FAILED}], {"a": "failed"}),
        ([{"a": SKIPPED}, {"a": SKIPPED}], {"a": "skipped"}),
        ([{"a": PASSED}, {"a": SKIPPED}], {"a": "failed"}),
        ([{"a": PASSED, "b": PASSED}, {"a": PASSED}], {"a": "passed", "b": "failed"}),
        ([{"a": PASSED}, None], {"a": "passed", "rank 1 left no report": "failed"}),
    ],
    ids=["passed", "failed on one", "skipped", "skipped on one", "only on one", "no report"],
)
def test_ranks(reports, outcomes):
    assert {name: case.outcome for name, case in merge_ranks(reports).items()} == outcomes


@pytest.mark.parametrize(
    ("status", "cases", "outcomes"),
    [
        ("PASSED", '<testcase classname="S" name="a" status="run"/>', {"//t:x S.a": "passed"}),
        ("FAILED", '<testcase classname="S" name="a"><failure/></testcase>', {"//t:x S.a": "failed"}),
        ("TIMEOUT", '<testcase classname="S" name="a"/>', {"//t:x S.a": "passed", "//t:x": "failed"}),
        ("PASSED", None, {"//t:x": "passed"}),
        ("FAILED", None, {"//t:x": "failed"}),
    ],
)
def test_events_of_bazel(tmp_path, status, cases, outcomes):
    outputs = []
    if cases:
        outputs = [{"name": "test.xml", "uri": junit(tmp_path / "test.xml", cases).as_uri()}]
    event = {
        "id": {"testResult": {"label": "//t:x"}},
        "testResult": {"status": status, "testActionOutput": outputs},
    }
    (tmp_path / "events.json").write_text(
        json.dumps({"id": {"started": {}}}) + "\n" + json.dumps(event) + "\n"
    )
    found = read_bazel_events(tmp_path / "events.json")
    assert {name: case.outcome for name, case in found.items()} == outcomes


def test_what_a_sanitizer_said_is_shown(tmp_path):
    case = '<testcase classname="x" name="x"><error message="exited with error code 66"/></testcase>'
    (tmp_path / "test.log").write_text(
        "[ RUN ]\nWARNING: a race\nSUMMARY: ThreadSanitizer: data race a.h:1\n"
    )
    outputs = [{"name": "test.xml", "uri": junit(tmp_path / "test.xml", case).as_uri()}]
    outputs.append({"name": "test.log", "uri": (tmp_path / "test.log").as_uri()})
    event = {
        "id": {"testResult": {"label": "//t:x"}},
        "testResult": {"status": "FAILED", "testActionOutput": outputs},
    }
    (tmp_path / "events.json").write_text(json.dumps(event) + "\n")
    (found,) = read_bazel_events(tmp_path / "events.json").values()
    assert found.message.splitlines()[0] == "SUMMARY: ThreadSanitizer: data race a.h:1"
    assert "exited with error code 66" in found.message


def test_the_table_has_each_part_and_its_slowest_tests(capsys):
    report = {f"t{seconds}": Case("passed", float(seconds)) for seconds in range(1, 8)}
    results = [Result("one", {**report, "bad": FAILED}, 30.0), Result("two", {"x": SKIPPED}, 4.0)]
    print_table(results, 31.0)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["one", "7", "1", "0", "30"] in rows
    assert ["two", "0", "0", "1", "4"] in rows
    assert [row[1] for row in rows if len(row) == 2 and row[1].startswith("t")] == [
        "t7",
        "t6",
        "t5",
        "t4",
        "t3",
    ]
    assert totals(results) == "7 passed, 1 failed, 1 skipped"


def test_a_run_ends_with_what_failed_and_why(tmp_path, capsys):
    path = junit(
        tmp_path / "report.xml",
        '<testcase classname="m" name="a"/><testcase classname="m" name="b">'
        '<failure message="AssertionError: 1 != 2">&gt; assert 1 == 2\nm.py:7: AssertionError</failure>'
        "</testcase>",
    )
    ranks = merge_ranks([read_junit(path), {"m.a": PASSED, "m.b": PASSED}])
    print_failures([Result("whole", {"m.a": PASSED}, 1.0), Result("spmd", ranks, 1.0)])
    assert capsys.readouterr().out.splitlines() == [
        "failed: spmd: m.b",
        "    rank 0: m.py:7: AssertionError",
        "    AssertionError: 1 != 2",
    ]
