"""In which order the parts of a test run are run, with parts that only say that they ran."""

import threading

import pytest
import run_tests
import test_parts
from test_parts import PARTS, Options
from test_results import Case, Result

LIMIT_S = 10.0


@pytest.fixture
def ran(monkeypatch):
    """The names of the parts that have run; "cpp" goes on until all shared parts but one have begun."""
    names = []
    begun = threading.Semaphore(0)

    def part(name, outcome):
        def run():
            names.append(name)
            if name in ("jobs", "launchers", "spmd"):
                begun.release()
            if name == "cpp" and outcome == "passed":
                assert begun.acquire(timeout=LIMIT_S) and begun.acquire(timeout=LIMIT_S)
            return Result(name, {name: Case(outcome if name == "set-up" else "passed")}, 0.0)

        return run

    def use(set_up):
        monkeypatch.setattr(run_tests, "runs_of", lambda name, options: [part(name, set_up)])
        return names

    return use


def run_all():
    results = run_tests.run_parts(list(PARTS), Options(False, False, ["2.15.1"]))
    return [result.name for result in results]


def test_shared_parts_run_beside_the_first_lane_and_each_once(ran):
    names = ran(set_up="passed")
    assert sorted(run_all()) == sorted(names) == sorted(PARTS)
    assert names[-1] == "overlap" and names.index("gpu") < names.index("bench")
    assert names.index("set-up") < names.index("jobs") < names.index("launchers") < names.index("spmd")
    assert names.index("lint") < names.index("asan") < names.index("tsan") < names.index("cpp")


def test_nothing_that_needs_the_set_up_runs_without_it(ran):
    names = ran(set_up="failed")
    assert sorted(run_all()) == sorted(names)
    assert sorted(names) == ["asan", "cpp", "docs", "fuzz", "layering", "lint", "model", "set-up", "tsan"]


def test_a_test_that_no_part_selects_is_a_failure_unless_a_part_ended_early(monkeypatch, tmp_path):
    (tmp_path / "spmd").mkdir()
    (tmp_path / "spmd" / test_parts.LEFT_OUT).write_text("a\nb\n")
    monkeypatch.setattr(test_parts, "RESULTS", tmp_path)
    passed = Result("np-1", {"a": Case("passed")}, 0.0)
    assert [list(each.report) for each in test_parts.selected_nowhere([passed])] == [["b"]]
    failed = Result("np-2", {"c": Case("failed")}, 0.0)
    assert test_parts.selected_nowhere([passed, failed]) == []
    assert test_parts.selected_nowhere([passed, Result("np-2", {"b": Case("passed")}, 0.0)]) == []
