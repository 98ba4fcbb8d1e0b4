"""Reads the reports of pytest, GoogleTest and Bazel, and prints the table of a test run.

The counts come from the reports that the tools write, never from the text that they print.
"""

import json
import pathlib
import urllib.parse
import xml.etree.ElementTree as ElementTree
from typing import Dict, List, NamedTuple, Optional

SLOWEST = 5
# How much is shown of what a failed test said, at the end of a run.
MESSAGE_LINES = 4
MESSAGE_WIDTH = 200


class Case(NamedTuple):
    """One test: what became of it, how long it took, and what it said if it failed."""

    outcome: str  # "passed", "failed" or "skipped"
    seconds: float = 0.0
    message: str = ""


# The cases of one or more reports, by the ids of the tests.
Report = Dict[str, Case]


class Result(NamedTuple):
    """The result of one part."""

    name: str
    report: Report
    seconds: float

    def count(self, outcome: str) -> int:
        """Returns how many tests ended so."""
        return sum(case.outcome == outcome for case in self.report.values())

    def line(self) -> str:
        """Returns the plain line that says how the part ended."""
        return f"{self.name}: {totals([self])} ({self.seconds:.0f} s)"


def totals(results: List[Result]) -> str:
    """Returns the counts of all parts together: `12 passed, 0 failed`, and the skipped if there are any."""
    passed, failed, skipped = (
        sum(result.count(outcome) for result in results) for outcome in ("passed", "failed", "skipped")
    )
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def print_table(results: List[Result], seconds: float) -> None:
    """Prints a row for each part, then the slowest tests of each part."""
    rows = [("part", "passed", "failed", "skipped", "seconds")]
    for result in results:
        counts = [str(result.count(outcome)) for outcome in ("passed", "failed", "skipped")]
        rows.append((result.name, *counts, f"{result.seconds:.0f}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    print()
    for name, *figures in rows:
        aligned = (figure.rjust(width) for figure, width in zip(figures, widths[1:]))
        print("  ".join([name.ljust(widths[0]), *aligned]))
    print(f"\nThe slowest {SLOWEST} tests of each part, in seconds:")
    for result in results:
        by_time = sorted(result.report.items(), key=lambda item: -item[1].seconds)
        slowest = [(name, case.seconds) for name, case in by_time[:SLOWEST] if case.seconds > 0]
        if slowest:
            print(f"  {result.name}")
        for name, test_seconds in slowest:
            print(f"  {test_seconds:8.1f}  {shorten(name)}")
    print(f"\nParts that ran at once overlap; all together took {seconds:.0f} s.")


def print_failures(results: List[Result]) -> None:
    """Prints the failed tests of all parts, with the beginning of what each said, as the last of a run."""
    for result in results:
        for name, case in result.report.items():
            if case.outcome == "failed":
                print(f"failed: {result.name}: {name}")
                for line in case.message.splitlines()[:MESSAGE_LINES]:
                    print(f"    {line[:MESSAGE_WIDTH]}")


def shorten(name: str) -> str:
    """Returns the name of a test, without its middle where it is long."""
    return name if len(name) <= 110 else f"{name[:70]} … {name[-36:]}"


def read_junit(path: pathlib.Path) -> Optional[Report]:
    """Returns the tests in a JUnit file (pytest's, GoogleTest's); None if there is no readable report."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None
    report: Report = {}
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        failures = [*case.findall("failure"), *case.findall("error")]
        if failures:
            outcome = "failed"
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            outcome = "skipped"
        else:
            outcome = "passed"
        # pytest reports a test that failed and whose teardown failed too as two cases.
        if name not in report or outcome == "failed":
            report[name] = Case(outcome, float(case.get("time") or 0.0), "\n".join(map(message_of, failures)))
    return report


def message_of(failure: ElementTree.Element) -> str:
    """Returns what a test said: its message, and the place, which ends pytest's text."""
    message = (failure.get("message") or "").strip()
    place = (failure.text or "").strip().rpartition("\n")[2]
    return message if place in message else f"{place}\n{message}"


def merge_ranks(reports: List[Optional[Report]]) -> Report:
    """Returns the tests of an SPMD run from its ranks' reports; a test fails if it failed on any rank.

    Every rank must run the same tests: one that only some ranks run would hang in its first collective. So a
    test that is missing on a rank has failed, and so has a rank that left no report.
    """
    merged: Report = {}
    for rank, report in enumerate(reports):
        if report is None:
            merged[f"rank {rank} left no report"] = Case("failed")
    whole = {rank: report for rank, report in enumerate(reports) if report is not None}
    for name in sorted({name for report in whole.values() for name in report}):
        cases = {
            rank: report.get(name, Case("failed", message="did not run")) for rank, report in whole.items()
        }
        outcomes = {case.outcome for case in cases.values()}
        outcome = outcomes.pop() if len(outcomes) == 1 else "failed"
        messages = [f"rank {rank}: {case.message}" for rank, case in cases.items() if case.message]
        merged[name] = Case(outcome, max(case.seconds for case in cases.values()), "\n".join(messages))
    return merged


def read_bazel_events(path: pathlib.Path) -> Report:
    """Returns the cases of all test programs that Bazel ran, from its build event file.

    A program that crashed or hung is one failure, whatever else its report says.
    """
    report: Report = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        event = json.loads(line)
        if "testResult" in event:
            _add_bazel_result(event, report)
    return report


def _add_bazel_result(event: Dict, report: Report) -> None:
    label = event["id"]["testResult"]["label"]
    result = event["testResult"]
    outputs = {
        output["name"]: pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path))
        for output in result.get("testActionOutput", [])
    }
    cases = read_junit(outputs["test.xml"]) if "test.xml" in outputs else None
    for name, case in (cases or {}).items():
        key = f"{label} {name}"
        # Each shard reports all cases, and those of the other shards as not run.
        if key not in report or report[key].outcome == "skipped" or case.outcome == "failed":
            report[key] = case
            if case.outcome == "failed" and "test.log" in outputs:
                words = sanitizers_words(outputs["test.log"])
                report[key] = case._replace(message="\n".join([*words, case.message]))
    if result["status"] != "PASSED" and not any(case.outcome == "failed" for case in (cases or {}).values()):
        report[label] = Case("failed")
    elif result["status"] == "PASSED" and not cases:
        report[label] = Case("passed")


def sanitizers_words(log: pathlib.Path) -> List[str]:
    """Returns what sanitizers said in a test's log, a line for each error; Bazel's report leaves it out."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if line.startswith("SUMMARY: ")]
