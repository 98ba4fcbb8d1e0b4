"""Runs the programs of this folder on simulated hosts, by SimGrid's smpirun.

The platform: hosts with a link each to a switch that is never in the way. `calibration.json`, which
calibrate.py writes, has what was measured on this machine's virtual hosts.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import tempfile
from typing import Dict, List, Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# SMPI's factors are for a cluster of its own; here, rate and latency are those of the platform. A message
# moves when its receive has been posted. Only the port's costs let time pass beside the network.
_SMPI = [
    "smpi/simulate-computation:no",
    "smpi/bw-factor:0:1",
    "smpi/lat-factor:0:1",
    "smpi/send-is-detached-thresh:0",
    "smpi/async-small-thresh:0",
    "smpi/test:0",
    "network/crosstraffic:no",
]
_PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="h" suffix="" radical="0-{last}" speed="1Gf" core="{cores}" bw="{rate}Bps"
           lat="{latency}s" loopback_bw="10GBps" loopback_lat="0.5us"/>
</platform>
"""


@dataclasses.dataclass(frozen=True)
class Network:
    """Links and CPUs, all alike.

    Attributes:
      rate: The bytes of data per second that a link moves to its host, and from it.
      latency: From one host to another, in seconds.
      message: The time that a message costs the CPU of its sender, and that of its receiver, in seconds.
      byte: The time that a byte of it costs them.
    """

    rate: float
    latency: float
    message: float
    byte: float

    def window(self, hosts: int) -> int:
        """The bytes of a host that are on the network at a time.

        Enough for the link to be full, and messages to several hosts. With more hosts messages are
        smaller, and as many of them fit fewer bytes; the time that SimGrid takes grows with them.
        """
        several = 256 << 10 if hosts <= 8 else 128 << 10 if hosts <= 16 else 64 << 10
        return max(several, int(2 * self.rate * self.latency))


def run(
    folder: pathlib.Path,
    network: Network,
    hosts: int,
    per_host: int,
    words: Sequence[str],
    limit_s: int = 600,
) -> Dict:
    """Runs a program on simulated hosts, and returns what it prints.

    Args:
      folder: Where build.sh has put the programs.
      network: The links.
      hosts: How many.
      per_host: The ranks on each.
      words: The program's name and its arguments.
      limit_s: It is killed after so many seconds.
    """
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        place = pathlib.Path(name)
        (place / "platform.xml").write_text(
            _PLATFORM.format(last=hosts - 1, cores=per_host, rate=network.rate, latency=network.latency / 2)
        )
        (place / "hosts").write_text("".join(f"h{host}\n" * per_host for host in range(hosts)))
        command = ["smpirun", "-np", str(hosts * per_host)]
        command += ["-platform", str(place / "platform.xml"), "-hostfile", str(place / "hosts")]
        command += [f"--cfg={each}" for each in _SMPI] + ["--log=root.thresh:warning"]
        command += [str(folder / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=limit_s, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) != 1:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(lines[0])


def model(
    folder: pathlib.Path,
    network: Network,
    hosts: int,
    per_host: int,
    counts: Sequence[int],
    limit_s: int = 600,
    **options: object,
) -> Dict:
    """Runs cluster_model with tensors of so many elements. `options` are those of cluster_model.cc."""
    with tempfile.NamedTemporaryFile("w", prefix="tensors-") as file:
        file.write("\n".join(map(str, counts)))
        file.flush()
        settings = {
            "set": file.name,
            "per_host": per_host,
            "message_us": network.message * 1e6,
            "byte_ns": network.byte * 1e9,
            "window_bytes": network.window(hosts),
            **options,
        }
        words = [f"{key}={value}" for key, value in settings.items()]
        return run(folder, network, hosts, per_host, ["cluster_model", *words], limit_s)


def gradients(name: str) -> List[int]:
    """The elements of a set's gradients in the order in which they are ready: the last layer's first."""
    shapes = json.loads((HERE.parent / "gradient_sets" / f"{name}.json").read_text())["shapes"]
    counts = []
    for shape in reversed(shapes):
        count = 1
        for size in shape:
            count *= size
        counts.append(count)
    return counts
