"""One rank of a job of a Python implementation: worker.py IMPLEMENTATION --output=FILE [--sizes=…] [--set=…].

run.py starts it, in the virtual environment and through the launcher that the implementation wants.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

from workloads import measure, options


def main() -> None:
    work, arguments = options.parse(sys.argv[1:])
    contestant = importlib.import_module(f"peers.{arguments.implementation}").join(arguments.mode)
    with contextlib.ExitStack() as stack:
        path = arguments.output if contestant.rank == 0 else os.devnull
        measure.run(contestant, work, stack.enter_context(open(path, "w")))
    contestant.close()


if __name__ == "__main__":
    main()
