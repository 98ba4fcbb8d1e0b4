"""Measures links and MPI between virtual hosts, and our allreduce there.

calibrate.py FOLDER

FOLDER has what `MPICXX=mpicxx build.sh FOLDER` compiles. It needs root and Open MPI 4, and writes
calibration.json.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional

from simulate import HERE, ROOT

sys.path.insert(0, str(ROOT / "tests" / "python" / "launchers"))
from virtual_hosts import VirtualHosts, mpirun


def measure(hosts: int, rate: Optional[str], words: List[str]) -> Dict:
    """Runs a program with a rank on each of some virtual hosts, and returns what it prints."""
    with VirtualHosts(hosts, rate) as virtual:
        start = mpirun("openmpi4", virtual, dict.fromkeys(virtual.names, 1), "mpirun.openmpi")
        # Ranks wait without taking the CPU from others: there are more of them than cores.
        command = virtual.on("h0", [*start, "--mca", "mpi_yield_when_idle", "1", *words])
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and len(lines) == 1, done.stdout + done.stderr
    return json.loads(lines[0])


def main() -> None:
    """Writes the file."""
    folder = pathlib.Path(sys.argv[1]).resolve()
    result: Dict[str, Dict] = {}
    for name, rate in (("1gbit", "1gbit"), ("unlimited", None)):
        result[name] = measure(2, rate, [str(folder / "calibrate")])
        print(name, result[name], flush=True)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("6553600\n")  # 25 MiB
        file.flush()
        for hosts in (2, 3):
            words = [str(folder / "cluster_model"), f"set={file.name}", "repeats=40", "check=1"]
            ours = measure(hosts, "1gbit", words)
            assert ours["right"] is True, ours
            result[f"ours_{hosts}_hosts"] = {
                "bytes": ours["bytes"],
                "ms": min(ours["ms"]),
                "all_ms": ours["ms"],
            }
            print(hosts, ours, flush=True)
    (HERE / "calibration.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
