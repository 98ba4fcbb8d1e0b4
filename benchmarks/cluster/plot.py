"""Draws docs/cluster-model.svg from the formula. It needs matplotlib (tools/requirements-bench.txt)."""

from __future__ import annotations

import pathlib

import matplotlib
from formula import CURVES, step_seconds
from simulate import ROOT
from sweep import NETWORKS

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw(path: pathlib.Path) -> None:
    """Draws the times of the sets, 8 ranks on each host, by formula."""
    plt.rcParams.update({"svg.hashsalt": "tf_smddp", "svg.fonttype": "none", "font.size": 9})
    figure, grid = plt.subplots(2, 3, figsize=(15, 8.4))
    hosts = [2**i for i in range(1, 12)]
    for line, name in zip(grid, ("keras_resnet50", "bert_base"), strict=True):
        for axes, (gbits, network) in zip(line, NETWORKS.items(), strict=True):
            for title, algorithm in CURVES.items():
                times = [step_seconds(algorithm, network, each, 8, name) for each in hosts]
                axes.plot(hosts, times, label=title, linewidth=2.4 if algorithm == "ours" else 1.2)
            axes.set(title=f"{name}, {gbits} Gbit/s", xscale="log", yscale="log", xlabel="hosts of 8 ranks")
            axes.set(ylabel="seconds")
            axes.set_xticks(hosts, [str(each) for each in hosts], minor=False)
            axes.minorticks_off()
            axes.grid(alpha=0.3)
    grid[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(ROOT / "docs" / "cluster-model.svg")
