"""The GPUs that a program of this host would see, and what its ranks are to know of them.

The launcher's process loads no driver for it; where a driver has to be asked, another process does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_DEVICE = re.compile(r"nvidia[0-9]+")
_ASKING_SECONDS = 60.0  # without persistence mode the driver needs seconds for each GPU
# A rank's GPU keeps so much free for NCCL, in MiB: a tenth of its memory, within these bounds. On 8 H100 NCCL
# took 4.3 GB after its first all-to-all (NVIDIA/nccl#1685). Without the variable TensorFlow leaves 1,050 to
# 1,800 MiB, which its own libraries need, too, so nothing is set where a tenth is hardly more.
_LEAST_ROOM, _MOST_ROOM = 2048, 4096
_ROOM = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"
# How many hardware queues the streams of a process share: by default 8, and 32 at most. TensorFlow, NCCL and
# our copies have more than 8 streams. Those that share a queue can wait for each other.
_QUEUES = ("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def count(environ: Mapping[str, str], devices_directory: str = "/dev") -> int:
    """The number of NVIDIA GPUs that CUDA shows to a process with this environment.

    The device files count rather than /proc/driver/nvidia, which shows a container all GPUs of its host.

    Args:
      environ: for CUDA_VISIBLE_DEVICES.
      devices_directory: where the device files are.
    """
    num_devices = sum(1 for name in os.listdir(devices_directory) if _DEVICE.fullmatch(name))
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or num_devices == 0:
        return num_devices
    visible = 0
    for word in chosen.split(","):
        if not _names_a_device(word.strip(), num_devices):
            break  # CUDA shows only the devices that are named before the first wrong name
        visible += 1
    return visible


def _names_a_device(word: str, num_devices: int) -> bool:
    if word.isascii() and word.isdecimal():
        return int(word) < num_devices
    return word.startswith(("GPU-", "MIG-"))


def with_settings(environ: Mapping[str, str], num_ranks: int) -> dict[str, str]:
    """Returns the environment of ranks that have a GPU each: `environ` and what is not set there.

    Args:
      environ: of the ranks.
      num_ranks: on this host.
    """
    if not 1 < num_ranks <= count(environ):
        return dict(environ)
    result = {_QUEUES[0]: _QUEUES[1], **environ}
    if _ROOM not in environ:
        room = room_of(_smallest_memory(environ))
        if room:
            result[_ROOM] = str(room)
    return result


def room_of(memory: int) -> int:
    """Returns how many MiB of a GPU with so many bytes are for others than TensorFlow; 0: as it decides."""
    room = min(_MOST_ROOM, (memory >> 20) // 10)
    return room if room >= _LEAST_ROOM else 0


def _smallest_memory(environ: Mapping[str, str]) -> int:
    """The bytes of the smallest GPU; 0 if the driver does not say it in time."""
    from smddprun.check import programs

    ended = programs.run(programs.words_of("smddprun.cuda"), environ, _ASKING_SECONDS)
    return int(ended.output) if ended.code == 0 else 0
