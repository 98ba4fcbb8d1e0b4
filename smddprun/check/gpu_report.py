"""The GPUs of a host: what CUDA's driver sees, against what TensorFlow and torch see, and what NCCL needs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from smddprun import cuda, gpus
from smddprun.check import programs
from smddprun.check.findings import Finding
from smddprun.check.libraries import Nccl
from smddprun.check.machine import size

TOPIC = "GPUs"
# NVIDIA's page of NCCL has containers started with so much.
_SHARED_MEMORY = 1 << 30
_TORCH_SECONDS = 60.0
_TORCH = "import torch; print('found', torch.cuda.device_count(), torch.version.cuda)"
_SHOWN_LINES = 12
# How CUDA names a part of a GPU: 'NVIDIA A100-SXM4-40GB MIG 3g.20gb'.
_PART = re.compile(r"\bMIG\b")
# Warnings and errors, in both forms of the log, and a line that names a library.
_REASON = re.compile(r"^\S+ \S+: [WEF] |^[WEF]\d{4} |Could not load dynamic library")
# How a line of TensorFlow's log begins, up to the file's name and the line's number.
_LOG_HEAD = re.compile(r"^\S.*?[\w/]+\.cc:\d+\] ")
# Remedies for errors at the driver's start (cuda.h).
_START_REMEDIES = {
    cuda.NO_DEVICE: "start the container with '--gpus all', and look at CUDA_VISIBLE_DEVICES",
    802: "GPUs that NVSwitch joins need the fabric manager, in the driver's version: 'systemctl start "
    "nvidia-fabricmanager' on the host, and see 'nvidia-smi -q | grep -A 3 Fabric'",
    803: "the driver's library and its kernel module differ: restart the machine after an update of the "
    "driver, and see that LD_LIBRARY_PATH has no folder of another driver's libcuda.so.1",
    804: "remove CUDA's compatibility libraries (cuda-compat) from LD_LIBRARY_PATH, or update the driver",
}
_DRIVER_REMEDY = "see whether 'nvidia-smi' works, and what 'dmesg | grep -i nvrm' says"


class Framework(NamedTuple):
    """How many GPUs a framework sees, what it has written meanwhile, and how it was built."""

    num_gpus: int
    text: str = ""
    remedy: str = ""


def find(environ: Mapping[str, str], nccl: Nccl) -> tuple[list[Finding], int, bool]:
    """Returns what there is to say, how many ranks can have a GPU, and whether NCCL joins these.

    It imports TensorFlow and has CUDA's driver begin, in this process. A host without GPUs gets one line.

    Args:
      environ: the environment of the ranks.
      nccl: as the engine has found it.
    """
    files = gpus.count(environ)
    # Before the driver begins here, since a process that has it should not be forked.
    torch = _torch(environ) if files and importlib.util.find_spec("torch") is not None else None
    driver = cuda.ask()
    seen = 0 if driver is None else len(driver.gpus)
    if files == 0 and (driver is None or driver.error == cuda.NO_DEVICE or (not driver.error and not seen)):
        return [Finding(TOPIC, "none, so neither CUDA's driver nor NCCL is needed")], 0, False
    found = [driver_of(driver, files, environ.get("CUDA_VISIBLE_DEVICES"))]
    tensorflow = _tensorflow() if importlib.util.find_spec("tensorflow") is not None else None
    for name, framework in (("TensorFlow sees", tensorflow), ("torch sees", torch)):
        if framework is not None:
            found.append(framework_of(name, framework, seen or files))
    if driver is None or driver.error:
        return found, 0, False
    parts = parts_of(driver)
    found += parts
    if seen > 1:
        found += [links_of(driver), shared_memory(os.statvfs("/dev/shm"))]
        found.append(nccl_of(nccl, _nccl_of_tensorflow()))
        found += packages_of(_nccl_packages(), driver)
    usable = 0 if tensorflow is None else tensorflow.num_gpus
    return found, usable, nccl.found and not parts


def driver_of(driver: cuda.Driver | None, files: int, visible: str | None) -> Finding:
    """Returns what there is to say of the driver. Pure.

    Args:
      driver: what it says; None if there is none.
      files: how many GPUs have a file in /dev that CUDA_VISIBLE_DEVICES does not hide.
      visible: the text of CUDA_VISIBLE_DEVICES, or None.
    """
    if driver is None:
        remedy = "install NVIDIA's driver, or start the container with '--gpus all'"
        return Finding(TOPIC, f"{files} in /dev, but there is no CUDA driver (libcuda.so.1)", remedy)
    if driver.error:
        remedy = _START_REMEDIES.get(driver.error, _DRIVER_REMEDY)
        return Finding(TOPIC, f"{files} in /dev, but {driver.error_text} (error {driver.error})", remedy)
    kinds = [f"{each.name}, {size(each.memory)}" for each in driver.gpus]
    shown = "; ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    text = f"{shown or 'none'}; the driver is for CUDA {driver.version_text}"
    if visible is not None:
        text += f"; CUDA_VISIBLE_DEVICES={visible}"
    if any(_PART.search(each.name) for each in driver.gpus):
        return Finding(TOPIC, f"{text}\nCUDA shows a process one part of a GPU (MIG), and NCCL joins none")
    if len(driver.gpus) < files:
        return Finding(TOPIC, f"{text}\nbut {files} have a file in /dev", _DRIVER_REMEDY)
    return Finding(TOPIC, text)


def framework_of(name: str, framework: Framework, num_gpus: int) -> Finding:
    """Returns what a framework sees, with what it has written if it sees fewer than there are. Pure."""
    if framework.num_gpus >= num_gpus:
        return Finding(name, f"all {num_gpus}")
    lines = framework.text.splitlines()
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], "..."]
    text = f"{framework.num_gpus} of {num_gpus} GPUs; a rank without one computes on the CPU"
    return Finding(name, "\n".join([text, *lines]), framework.remedy)


def reasons_in(log: str) -> str:
    """Returns the lines of TensorFlow's log that say why it registers no GPU, without their heads. Pure."""
    lines = [_LOG_HEAD.sub("", line) for line in log.splitlines() if _REASON.search(line)]
    return "\n".join(dict.fromkeys(lines))


def parts_of(driver: cuda.Driver) -> list[Finding]:
    """Returns a problem if two devices are parts of one GPU (MIG), else nothing. Pure."""
    ids = [each.bus_id for each in driver.gpus]
    shared = sorted({each for each in ids if ids.count(each) > 1})
    if not shared:
        return []
    numbers = ", ".join(str(number) for number, each in enumerate(ids) if each == shared[0])
    return [
        Finding(
            "parts of a GPU",
            f"devices {numbers} are parts of one GPU (bus id {shared[0]}), and NCCL does not join these",
            "turn MIG off ('nvidia-smi -mig 0', as root), or leave it, and all goes through the host",
        )
    ]


def links_of(driver: cuda.Driver) -> Finding:
    """Returns which GPUs reach each other's memory. Pure."""
    if not driver.apart:
        return Finding("links", "each GPU reaches the memory of each other one ('nvidia-smi topo -m': how)")
    pairs = ", ".join(f"{one} and {other}" for one, other in driver.apart[:4])
    more = ", ..." if len(driver.apart) > 4 else ""
    text = f"GPUs {pairs}{more} do not reach each other's memory, so NCCL goes through the host's there"
    return Finding("links", text)


def shared_memory(status: os.statvfs_result) -> Finding:
    """Returns what there is to say of /dev/shm. Pure."""
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    text = f"{size(free)} of {size(total)} free"
    if free >= _SHARED_MEMORY:
        return Finding("/dev/shm", text)
    return Finding(
        "/dev/shm",
        f"{text}, and NCCL may need {size(_SHARED_MEMORY)} there, where GPUs do not reach each other",
        "start the container with '--shm-size=1g' or '--ipc=host'; in Kubernetes, mount an emptyDir with "
        "'medium: Memory' at /dev/shm",
    )


def nccl_of(nccl: Nccl, of_tensorflow: str) -> Finding:
    """Returns what there is to say of NCCL, for a host with several GPUs. Pure.

    Args:
      nccl: as the engine has found it.
      of_tensorflow: the version that TensorFlow's package asks for, or "".
    """
    if not nccl.found:
        return Finding("NCCL", nccl.text, "install it: pip install nvidia-nccl-cu12")
    other = of_tensorflow and not nccl.text.startswith(f"{of_tensorflow} ")
    return Finding("NCCL", f"{nccl.text}{f'; tensorflow[and-cuda] has {of_tensorflow}' if other else ''}")


def packages_of(packages: Mapping[str, str], driver: cuda.Driver) -> list[Finding]:
    """Returns a problem if a package of NCCL is for a newer CUDA than the driver is, else nothing. Pure.

    Args:
      packages: the versions of nvidia-nccl-cu12 and the like. All bring the same file, and the last one that
        was installed has written it.
      driver: what it says.
    """
    found = []
    for name, version in packages.items():
        if int(name.rpartition("cu")[2]) > driver.version // 1000:
            text = f"{name} {version} is installed, but the driver is for CUDA {driver.version_text}"
            remedy = f"update the driver, or run '{sys.executable} -m pip uninstall {name}' and "
            remedy += f"'pip install --force-reinstall nvidia-nccl-cu{driver.version // 1000}'"
            found.append(Finding("NCCL's package", text, remedy))
    return found


def _nccl_of_tensorflow() -> str:
    try:
        wanted = "\n".join(importlib.metadata.requires("tensorflow") or [])
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = re.search(r"^nvidia-nccl-cu\d+[ (]*==([\d.]+)", wanted, re.MULTILINE)
    return found[1] if found else ""


def _nccl_packages() -> dict[str, str]:
    found = {}
    for name in ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _torch(environ: Mapping[str, str]) -> Framework:
    ended = programs.run([sys.executable, "-c", _TORCH], environ, _TORCH_SECONDS)
    found = re.search(r"^found (\d+) (.*)$", ended.output, re.MULTILINE)
    remedy = "install the torch that is built for this driver's CUDA: see pytorch.org"
    if found is None:
        return Framework(0, f"{ended.why(_TORCH_SECONDS)}\n{ended.excerpt()}", remedy)
    built = "without CUDA" if found[2] == "None" else f"for CUDA {found[2]}"
    return Framework(int(found[1]), f"it is built {built}\n{ended.errors.strip()}", remedy)


def _tensorflow() -> Framework:
    """Has TensorFlow look for GPUs, and keeps what it writes, as to why it registers none."""
    import tensorflow as tf

    with tempfile.TemporaryFile() as kept:
        stderr = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            count = len(tf.config.list_physical_devices("GPU"))
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        kept.seek(0)
        text = reasons_in(kept.read().decode(errors="replace"))
    version = ".".join(tf.__version__.split(".")[:2])
    install = f"{sys.executable} -m pip install 'tensorflow[and-cuda]=={version}.*'"
    if not tf.test.is_built_with_cuda():
        text = f"this TensorFlow is built without CUDA\n{text}".strip()
        return Framework(count, text, f"uninstall tensorflow-cpu, and install the other one: {install}")
    return Framework(count, text, f"install the libraries that TensorFlow misses: {install}")
