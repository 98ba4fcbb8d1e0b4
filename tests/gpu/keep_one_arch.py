"""Makes a library with CUDA code small enough to be brought along: keep_one_arch.py ARCH IN OUT.

The code for all other GPUs is overwritten with zeros, which compress to nothing. Nothing moves, so the
library works as before on a GPU of the compute capability ARCH, such as 90. A container of device code
without any for ARCH stays whole.
"""

import mmap
import pathlib
import shutil
import struct
import subprocess
import sys

MAGIC = struct.pack(
    "<IHH", 0xBA55ED50, 1, 16
)  # of a container of device code: magic, version, size of the header
MACHINE_CODE = 2  # the kind of an entry; 1 is PTX


def entries_of(data: mmap.mmap, begin: int, end: int) -> list[tuple[int, int, int, int]]:
    """Kind, architecture, and range of each entry of a container."""
    entries = []
    while begin + 64 <= end:
        kind, _, header_bytes, code_bytes, _, _, _, _, arch = struct.unpack_from("<HHIQIIHHI", data, begin)
        code = begin + header_bytes
        begin = code + code_bytes
        if header_bytes < 64 or begin > end:
            raise ValueError(f"no entry of device code at byte {code - header_bytes}")
        entries.append((kind, arch, code, begin))
    return entries


def main() -> None:
    arch, source, target = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    if shutil.which("strip") is None or subprocess.run(["strip", "-g", "-o", target, source]).returncode != 0:
        shutil.copyfile(source, target)
    before = kept = 0
    with target.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        at = data.find(MAGIC)
        while at >= 0:
            (code_bytes,) = struct.unpack_from("<Q", data, at + 8)
            if at + 16 + code_bytes > len(data):
                at = data.find(MAGIC, at + 1)
                continue
            entries = entries_of(data, at + 16, at + 16 + code_bytes)
            has_it = any(kind == MACHINE_CODE and its == arch for kind, its, _, _ in entries)
            for kind, its, begin, end in entries:
                before += end - begin
                if has_it and (kind != MACHINE_CODE or its != arch):
                    data[begin:end] = bytes(end - begin)
                else:
                    kept += end - begin
            at = data.find(MAGIC, at + 16 + code_bytes)
    print(f"{target.name}: {kept >> 20} of {before >> 20} MiB of device code are kept")


if __name__ == "__main__":
    main()
