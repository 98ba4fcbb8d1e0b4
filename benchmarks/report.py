"""Makes a report of the results that run.py has written: report.py [RESULTS.jsonl…] [--document FILE].

The results of several files are combined; the machine, the versions and the date are those of the first file.
"""

from __future__ import annotations

import argparse
import json
import pathlib

from driver import report
from peers.base import ROOT


def main() -> None:
    parser = argparse.ArgumentParser(description="Make tables and plots of results.")
    parser.add_argument(
        "results", type=pathlib.Path, nargs="*", default=[ROOT / ".cache" / "bench" / "results.jsonl"]
    )
    parser.add_argument(
        "--document",
        type=pathlib.Path,
        help="a document in which the results between the markers are replaced",
    )
    arguments = parser.parse_args()
    files = [[json.loads(line) for line in path.read_text().splitlines()] for path in arguments.results]
    records = files[0] + [record for file in files[1:] for record in file[1:]]
    report.write(records, arguments.results[0].resolve().parent, arguments.document)


if __name__ == "__main__":
    main()
