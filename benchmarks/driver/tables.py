"""The tables of a suite, as Markdown; run.py shows them, and report.py puts them into the document."""

from __future__ import annotations

from typing import Dict, List, Sequence

from driver.figures import figures, size_text, time_text

Record = Dict


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def suite_table(records: Sequence[Record], absent: Sequence[str]) -> str:
    """Returns a suite's table: a row for each size; a peer's time, and in brackets how many times ours.

    Args:
        records: those of the suite.
        absent: titles of peers that are not installed.
    """
    found = figures(records)
    titles = {record["implementation"]: record["title"] for record in records}
    ours = {record["implementation"] for record in records if record["ours"]}
    names = sorted(titles, key=lambda name: name not in ours)
    rows: List[List[str]] = []
    for size in sorted({size for _, size in found}):
        row = [size_text(size)]
        for position, name in enumerate(names):
            figure = found.get((name, size))
            if figure is None:
                row.append("–")
            elif position == 0:
                spread = f"{time_text(figure.low)} – {time_text(figure.high)}"
                row += [time_text(figure.seconds), spread, f"{figure.memcpy_ratio:.2f}×"]
            else:
                ratio = "" if figure.ours_ratio is None else f" ({figure.ours_ratio:.3g}×)"
                row.append(time_text(figure.seconds) + ratio)
        if (names[0], size) not in found:
            row[1:2] = ["–", "–", "–"]
        rows.append(row)
    head = ["bytes", titles[names[0]], "from – to", "speed of memcpy"] + [titles[name] for name in names[1:]]
    text = markdown(head, rows)
    failed = sorted({f"{r['title']}: {r['error']}" for r in records if "error" in r})
    notes = [f"Not installed: {', '.join(absent)}."] if absent else []
    notes += [f"Failed: {'; '.join(failed)}."] if failed else []
    return "\n\n".join([text, *notes])
