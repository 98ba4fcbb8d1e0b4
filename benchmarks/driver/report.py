"""Makes the report of a measurement: Markdown, an SVG, and the section of a document between two markers.

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


def suite_text(records: Sequence[Record], name: str) -> str:
    """Returns the section of one suite."""
    about = next(record for record in records if record.get("suite") == name and "suite_title" in record)
    own = [record for record in records if record.get("suite") == name and "implementation" in record]
    if not own:
        return f"### {about['suite_title']}\n\nNot measured: not installed."
    return f"### {about['suite_title']}\n\n{tables.suite_table(own, about['absent'])}"


def write(records: List[Record], folder: pathlib.Path, document: Optional[pathlib.Path]) -> None:
    """Writes report.md to `folder`, the plots, and the results into the document, if there is one.

    The plots lie beside the document, or in the folder: performance.svg, and in-graphs.svg for the README.
    """
    names = [record["suite"] for record in records if "suite_title" in record]
    sweeps = []
    for name in names:
        own = [record for record in records if record.get("suite") == name and record.get("work") == "sweep"]
        title = next(record["suite_title"] for record in records if record.get("suite") == name)
        if own:
            sweeps.append((title, own))
    plot = (document.parent if document else folder) / "performance.svg"
    if sweeps:
        from driver import plots  # imported late: the tests of this module run without matplotlib

        plots.plot_sweeps(sweeps, plot)
        in_graphs = [sweep for sweep in sweeps if sweep[0].startswith("TensorFlow, graph")][:1]
        if in_graphs:
            plots.plot_sweeps(in_graphs, plot.with_name("in-graphs.svg"))
    text = _text(records, names, plot.name if sweeps else "")
    (folder / "report.md").write_text(text + "\n")
    print(f"The report is in {folder / 'report.md'}, the plot in {plot}", flush=True)
    if document:
        document.write_text(insert(document.read_text(), text))


def insert(document: str, text: str) -> str:
    """Returns the document with `text` in place of what stands between the markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no markers for the results: {BEGIN!r} and {END!r}, in this order")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _text(records: Sequence[Record], names: Sequence[str], plot: str) -> str:
    parts = [text for text in (_origin(records[0]), summary.text(records)) if text]
    if plot:
        parts.append(f"![Time of an allreduce by size]({plot})")
    parts += [suite_text(records, name) for name in names]
    parts += [text for text in (steps.text(records), scaling.text(records), whole.text(records)) if text]
    return "\n\n".join(parts)


def _origin(record: Record) -> str:
    about, versions = record["about"], record["versions"]
    installed = ", ".join(f"{title} {version}" for title, version in versions.items() if version)
    missing = ", ".join(title for title, version in versions.items() if not version)
    lines = [
        f"Measured on {about['date']}: {about['processor']}, {about['cores']} cores, {about['memory']}, "
        f"{about['system']}, {about['compiler']}; commit {about['commit']}; load {about['load']}.",
        f"Versions: {installed}." + (f" Not installed: {missing}." if missing else ""),
    ]
    return "\n".join(lines)
