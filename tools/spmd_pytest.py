"""Runs pytest as one rank of an SPMD suite: smddprun -np N python tools/spmd_pytest.py FOLDER ARGUMENTS...

Every rank runs the same tests. Rank 0 prints as usual. The others write into FOLDER/rank-K.log, which is
printed only when that rank fails. Each rank leaves FOLDER/rank-K.xml (JUnit) for run_tests.py.
"""

import os
import pathlib
import sys


def main() -> int:
    """Returns pytest's exit code of this rank."""
    folder = pathlib.Path(sys.argv[1])
    rank = int(os.environ.get("SMDDP_RANK", "0"))
    arguments = [*sys.argv[2:], f"--junitxml={folder / f'rank-{rank}.xml'}"]

    # The descriptors, not sys.stdout: TensorFlow and the engine write to them directly.
    log_path = folder / f"rank-{rank}.log"
    console = os.dup(1)
    if rank != 0:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    import pytest

    code = int(pytest.main(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    if rank != 0 and code != 0:
        with os.fdopen(console, "w") as out:
            out.write(f"rank {rank} failed with exit code {code}:\n{log_path.read_text(errors='replace')}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
