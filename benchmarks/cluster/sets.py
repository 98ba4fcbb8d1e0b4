"""Simulates whole steps of ResNet50 at 10 Gbit/s, with compute time and without, and writes sets.csv.

sets.py FOLDER, which has what build.sh compiles.
"""

from __future__ import annotations

import csv
import pathlib
import sys

from formula import step_seconds
from simulate import HERE, gradients, model
from sweep import NETWORKS

SET, GBITS, COMPUTE_MS = "keras_resnet50", 10, 300


def main() -> None:
    """Writes the file."""
    folder, network = pathlib.Path(sys.argv[1]).resolve(), NETWORKS[GBITS]
    with (HERE / "sets.csv").open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["algorithm", "hosts", "ms", "formula_ms", "step_ms", "exposed_ms"])
        for hosts in (2, 4, 8):
            for algorithm in ("ours", "hosts_ring", "horovod"):
                alone, step = (
                    model(folder, network, hosts, 1, gradients(SET), algorithm=algorithm, compute_ms=compute)[
                        "ms"
                    ][0]
                    for compute in (0, COMPUTE_MS)
                )
                by_formula = 1e3 * step_seconds(algorithm, network, hosts, 1, SET)
                row = [algorithm, hosts, alone, round(by_formula, 3), step, round(step - COMPUTE_MS, 3)]
                writer.writerow(row)
                file.flush()
                print(*row, flush=True)


if __name__ == "__main__":
    main()
