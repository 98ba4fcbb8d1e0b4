"""Makes the report of a measurement: Markdown, an SVG, and the sections of a document between markers.

Whole training has a section of its own in the document. A section stays as it is if none of it was measured.

python benchmarks/report.py RESULTS.jsonl --document docs/performance.md     # from earlier results
"""

from __future__ import annotations

import pathlib
from typing import Dict, List, Optional, Sequence

from training import scaling, steps, whole

from driver import summary, tables

Record = Dict
BEGIN = "<!-- results: written by `benchmarks/report.py`; changes by hand are lost -->"
END = "<!-- end of the results -->"
WHOLE_BEGIN = "<!-- whole training: written by `benchmarks/report.py`; changes by hand are lost -->"
WHOLE_END = "<!-- end of whole training -->"
# The document has the suites whose names end like this, and these sizes of a sweep; report.md has all.
IN_DOCUMENT = "graph-2"
SIZES_IN_DOCUMENT = (4, 64 << 10, 1 << 20, 25 << 20, 256 << 20)


def suite_text(records: Sequence[Record], name: str) -> str:
    """Returns the section of one suite."""
    about = next(record for record in records if record.get("suite") == name and "suite_title" in record)
    own = [record for record in records if record.get("suite") == name and "implementation" in record]
    if not own:
        return f"### {about['suite_title']}\n\nNot measured: not installed."
    return f"### {about['suite_title']}\n\n{tables.suite_table(own, about['absent'])}"


def write(records: List[Record], folder: pathlib.Path, document: Optional[pathlib.Path]) -> None:
    """Writes report.md to `folder`, the plots, and the results into the document, if there is one.

    performance.svg has all sweeps. in-graphs.svg, of graphs alone, lies beside the document, if there is one.
    """
    names = [record["suite"] for record in records if "suite_title" in record]
    sweeps = []
    for name in names:
        own = [record for record in records if record.get("suite") == name and record.get("work") == "sweep"]
        title = next(record["suite_title"] for record in records if record.get("suite") == name)
        if own:
            sweeps.append((title, own))
    plot = folder / "performance.svg"
    if sweeps:
        from driver import plots  # imported late: the tests of this module run without matplotlib

        plots.plot_sweeps(sweeps, plot)
        in_graphs = [sweep for sweep in sweeps if sweep[0].startswith("TensorFlow, graph")][:1]
        if in_graphs:
            plots.plot_sweeps(in_graphs, (document.parent if document else folder) / "in-graphs.svg")
    image = f"![Time of an allreduce by size]({plot.name})" if sweeps else ""
    parts = [summary.text(records), image, *_results(records, names)]
    text = "\n\n".join(part for part in (_origin(records[0]), *parts, whole.text(records)) if part)
    (folder / "report.md").write_text(text + "\n")
    print(f"The report is in {folder / 'report.md'}, the plot in {plot}", flush=True)
    if document:
        some = [name for name in names if name.endswith(IN_DOCUMENT)]
        short = _results(list(filter(is_in_document, records)), some)
        document.write_text(update(document.read_text(), short, records))


def is_in_document(record: Record) -> bool:
    """Whether a record is of a size that the document has."""
    return record.get("work") != "sweep" or record.get("bytes", 4) in SIZES_IN_DOCUMENT


def update(document: str, parts: Sequence[str], records: Sequence[Record]) -> str:
    """Returns the document with the sections that were measured; `parts` are those of the results."""
    whole_text = whole.text(records)
    if parts:
        document = insert(document, "\n\n".join([_origin(records[0]), *parts]))
    if whole_text:
        text = f"{_machine(records[0])}\nVersions: {whole.software(records)}.\n\n{whole_text}"
        document = insert(document, text, WHOLE_BEGIN, WHOLE_END)
    return document


def insert(document: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """Returns the document with `text` in place of what stands between two markers."""
    before, found, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the document has no markers for the results: {begin!r} and {end!r}, in this order")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _results(records: Sequence[Record], names: Sequence[str]) -> List[str]:
    """Returns the tables of the results, without whole training."""
    parts = [suite_text(records, name) for name in names]
    return [text for text in (*parts, steps.text(records), scaling.text(records)) if text]


def _machine(record: Record) -> str:
    about = record["about"]
    return (
        f"Measured on {about['date']}: {about['processor']}, {about['cores']} cores, {about['memory']}, "
        f"{about['system']}, {about['compiler']}; commit {about['commit']}; load {about['load']}."
    )


def _origin(record: Record) -> str:
    versions = record["versions"]
    installed = ", ".join(f"{title} {version}" for title, version in versions.items() if version)
    missing = ", ".join(title for title, version in versions.items() if not version)
    lines = [
        _machine(record),
        f"Versions: {installed}." + (f" Not installed: {missing}." if missing else ""),
    ]
    return "\n".join(lines)
