"""How many GPUs a program of this host would see. No driver is loaded and no library is imported for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_DEVICE = re.compile(r"nvidia[0-9]+")


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
