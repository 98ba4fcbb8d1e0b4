"""Plots of the suites that sweep over sizes, as one SVG."""

from __future__ import annotations

import pathlib
from typing import Dict, List, Sequence, Tuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from driver.figures import figures, size_text, time_text

Record = Dict


def plot_sweeps(suites: Sequence[Tuple[str, Sequence[Record]]], path: pathlib.Path) -> None:
    """Draws the time of an allreduce over its size, both logarithmic, one panel for each suite.

    Args:
        suites: title and records of each.
        path: the SVG to write.
    """
    plt.rcParams.update({"svg.hashsalt": "tf_smddp", "svg.fonttype": "none", "font.size": 9})
    columns = min(2, len(suites))
    rows = (len(suites) + columns - 1) // columns
    figure, grid = plt.subplots(rows, columns, figsize=(6.2 * columns, 4.2 * rows), squeeze=False)
    for axes, (title, records) in zip(grid.flat, suites):
        _panel(axes, title, records)
    for axes in list(grid.flat)[len(suites) :]:
        axes.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


def _panel(axes: plt.Axes, title: str, records: Sequence[Record]) -> None:
    found = figures(records)
    titles = {record["implementation"]: (record["title"], record["ours"]) for record in records}
    for name, (label, ours) in sorted(titles.items(), key=lambda item: not item[1][1]):
        points = sorted((size, figure.seconds) for (key, size), figure in found.items() if key == name)
        if points:
            axes.plot(*zip(*points), label=label, linewidth=2.4 if ours else 1.2, marker="o", markersize=3)
        if ours:
            copies = sorted((s, f.seconds * f.memcpy_ratio) for (key, s), f in found.items() if key == name)
            axes.plot(*zip(*copies), label="memcpy by all ranks", color="grey", linestyle="--", linewidth=1.2)
    sizes: List[int] = sorted({size for _, size in found})
    axes.set(title=title, xscale="log", yscale="log", xlabel="size of the tensor")
    axes.set_xticks(sizes[::2], [size_text(size) for size in sizes[::2]], rotation=45, minor=False)
    axes.yaxis.set_major_formatter(lambda seconds, _: time_text(seconds))
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
