"""The findings of `smddprun --check`: lines for a person, and their way from one process to another. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_TOPIC_WIDTH = 16
MARK = "smddprun-check-"  # of a line that is for the check, not for a person
# With a problem in one of these, no job can start.
_NEEDED = ("report", "tf_smddp", "TensorFlow", "libraries")
# Two hosts that differ in one of these cannot train together, or only by luck.
MUST_AGREE = ("tf_smddp", "Python", "TensorFlow", "MPI library")


class Finding(NamedTuple):
    """One line of the report. With a remedy, a sentence in plain words, it is a problem."""

    topic: str
    text: str
    remedy: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether something has to be done."""
        return bool(self.remedy)

    def lines(self) -> list[str]:
        """The lines for a person: a problem begins with '!', and its remedy is on a line of its own."""
        mark = "!" if self.is_problem else " "
        first, *rest = self.text.split("\n")
        shown = [f"{mark} {self.topic:{_TOPIC_WIDTH}}{first}".rstrip()]
        shown += [f"  {'':{_TOPIC_WIDTH}}{line}".rstrip() for line in rest]
        if self.is_problem:
            shown.append(f"  {'':{_TOPIC_WIDTH}}remedy: {self.remedy}")
        return shown


class Report(NamedTuple):
    """The findings on one host. `versions` is compared between hosts; its keys are in `MUST_AGREE`.

    `gpus` is how many ranks can have a GPU there. `has_nccl`: whether NCCL can join these.
    """

    host: str
    findings: tuple[Finding, ...]
    versions: Mapping[str, str]
    gpus: int = 0
    has_nccl: bool = False

    @property
    def can_start(self) -> bool:
        """Whether a job can start on the host, as far as the report tells."""
        return not any(each.is_problem and each.topic in _NEEDED for each in self.findings)


def encode(kind: str, content: object) -> str:
    """Returns a line by which a program that the check has started hands over what it has found.

    Args:
      kind: what the line is, one word.
      content: what JSON can express.
    """
    return f"{_mark(kind)}{json.dumps(content)}\n"


def decode(kind: str, output: str) -> list[Any]:
    """Returns the contents of all lines of a kind in an output, which may have other lines as well.

    A launcher may have put a tag before the line.
    """
    found = []
    for line in output.splitlines():
        _, mark, text = line.partition(_mark(kind))
        if mark:
            try:
                found.append(json.loads(text))
            except ValueError:
                continue  # cut off, since the program was ended
    return found


def report_of(content: Any) -> Report:
    """Returns the report that was encoded, a tuple as JSON has it."""
    host, findings, *rest = content
    return Report(host, tuple(Finding(*each) for each in findings), *rest)


def disagreements(reports: Sequence[Report]) -> list[Finding]:
    """Returns a problem for each version in which a host differs from the first one."""
    found = []
    for name in MUST_AGREE:
        first = next((report for report in reports if name in report.versions), None)
        if first is None:
            continue
        own = first.versions[name]
        for other in reports:
            theirs = other.versions.get(name, own)
            if theirs != own:
                found.append(
                    Finding(
                        name,
                        f"{first.host} has {own}, and {other.host} has {theirs}",
                        f"have the same {name} on all hosts",
                    )
                )
    return found


def lines_of(findings: Iterable[Finding]) -> list[str]:
    """Returns the lines of all findings."""
    return [line for finding in findings for line in finding.lines()]


def _mark(kind: str) -> str:
    return f"{MARK}{kind}: "
