"""Makes the report of results that run.py has left: report.py [RESULTS.jsonl…] [--document FILE].

Of several files what was measured is put together; machine, versions and date are the first one's.
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
        "--document", type=pathlib.Path, help="a document whose marked section is written anew"
    )
    arguments = parser.parse_args()
    files = [[json.loads(line) for line in path.read_text().splitlines()] for path in arguments.results]
    records = files[0] + [record for file in files[1:] for record in file[1:]]
    report.write(records, arguments.results[0].resolve().parent, arguments.document)


if __name__ == "__main__":
    main()
