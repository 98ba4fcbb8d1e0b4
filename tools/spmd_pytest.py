"""Runs pytest as one rank of an SPMD suite: smddprun -np N python tools/spmd_pytest.py FOLDER ARGUMENTS...

Every rank runs the same tests and leaves FOLDER/rank-K.xml (JUnit). Rank 0 prints as usual; the others write
into FOLDER/rank-K.log. run_tests.py reads both, and shows the logs when something went wrong.
"""

import os
import pathlib
import sys

import pytest


def main() -> int:
    """Returns pytest's exit code of this rank."""
    folder = pathlib.Path(sys.argv[1])
    # smddprun's variable; on several hosts that of Open MPI's or MPICH's launcher.
    names = ("SMDDP_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    rank = int(next((os.environ[name] for name in names if os.environ.get(name)), "0"))
    if rank != 0:
        # The descriptors, not sys.stdout: TensorFlow and the engine write to them directly.
        log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    return int(pytest.main([*sys.argv[2:], f"--junitxml={folder / f'rank-{rank}.xml'}"]))


if __name__ == "__main__":
    sys.exit(main())
