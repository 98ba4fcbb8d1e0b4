#!/usr/bin/env python3
"""Makes a compiler whose libraries run on systems from 2018 on: `CC=$(tools/old_glibc.py) make wheel`.

A library asks for the versions of the functions that it was linked with. So this one is the system's GCC, but
it links with the C library of Ubuntu 18.04 (glibc 2.27, libstdc++ of GCC 8), which are taken from Ubuntu's
archive. Functions of libstdc++ that these do not have are linked in, as RHEL's toolsets do it. Headers are
the system's, but for two things that they would take from a newer glibc. For x86-64; needs dpkg.
"""

import hashlib
import pathlib
import shutil
import subprocess
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent.parent / ".cache" / "old-glibc"
ARCHIVE = "http://archive.ubuntu.com/ubuntu/pool/main/g/"
PACKAGES = {
    "glibc/libc6_2.27-3ubuntu1_amd64.deb": "1e1eb86fd646aa68f7144ec692b837b6b352d215880c6a2d0c92c19d36938427",
    "glibc/libc6-dev_2.27-3ubuntu1_amd64.deb": (
        "e426c70a940a7d0c5c95823a5fd01f26bd8bcb08d109df2f8c96c439da8dc440"
    ),
    "gcc-8/libgcc1_8-20180414-1ubuntu2_amd64.deb": (
        "c5a6df527fdfe0da45ff0538414535a04a6753e93a9f5902689cf1a73265423b"
    ),
    "gcc-8/libstdc++6_8-20180414-1ubuntu2_amd64.deb": (
        "8668c100a679d68520256f9145ef6f9cf3912aa574605884fe866a4962415422"
    ),
}
# Headers, which are found before the system's.
HEADERS = {
    # glibc 2.30 has what condition_variable would call to wait by the steady clock.
    "old_glibc.h": (
        "#ifdef __cplusplus\n"
        "#include <bits/c++config.h>\n"
        "#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT\n"
        "#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK\n"
        "#endif\n"
    ),
    # glibc 2.32 has a variable of this name. A process is never taken for one with a single thread.
    "sys/single_threaded.h": "static const char __libc_single_threaded = 0;\n",
}
# In place of the system's linker scripts, whose paths are absolute.
SCRIPTS = {
    "libc.so": "GROUP ( {root}/lib/{triple}/libc.so.6 {root}/usr/lib/{triple}/libc_nonshared.a"
    " AS_NEEDED ( {root}/lib/{triple}/ld-linux-x86-64.so.2 ) )",
    "libpthread.so": "GROUP ( {root}/lib/{triple}/libpthread.so.0"
    " {root}/usr/lib/{triple}/libpthread_nonshared.a )",
    "libdl.so": "INPUT ( {root}/lib/{triple}/libdl.so.2 )",
    "libm.so": "INPUT ( {root}/lib/{triple}/libm.so.6 )",
    "librt.so": "INPUT ( {root}/lib/{triple}/librt.so.1 )",
    "libgcc_s.so": "INPUT ( {root}/lib/{triple}/libgcc_s.so.1 -lgcc )",
    "libstdc++.so": "INPUT ( {root}/usr/lib/{triple}/libstdc++.so.6 {static} )",
}
TRIPLE = "x86_64-linux-gnu"


def fetch(name: str, digest: str, into: pathlib.Path) -> None:
    """Unpacks a package of Ubuntu's archive.

    Raises:
        RuntimeError: it is another one.
    """
    with urllib.request.urlopen(ARCHIVE + name, timeout=60) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise RuntimeError(f"{ARCHIVE}{name} has another SHA-256 than {digest}.")
    package = into / "package.deb"
    package.write_bytes(data)
    subprocess.run(["dpkg-deb", "-x", str(package), str(into)], check=True)
    package.unlink()


def compiler() -> pathlib.Path:
    """Returns the path of the compiler, and makes it if need be."""
    gcc = FOLDER / "gcc"
    if gcc.exists():
        return gcc
    shutil.rmtree(FOLDER, ignore_errors=True)
    root, libraries, headers = (FOLDER / name for name in ("root", "lib", "include"))
    for folder in (root, libraries, headers / "sys"):
        folder.mkdir(parents=True)
    for name, digest in PACKAGES.items():
        fetch(name, digest, root)
    plain = shutil.which("gcc")
    if plain is None:
        raise RuntimeError("there is no gcc in PATH.")
    static = subprocess.run(
        [plain, "-print-file-name=libstdc++.a"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for name, text in SCRIPTS.items():
        (libraries / name).write_text(text.format(root=root, triple=TRIPLE, static=static))
    for name, text in HEADERS.items():
        (headers / name).write_text(text)
    search = ":".join(f"{root}/{folder}/{TRIPLE}" for folder in ("lib", "usr/lib"))
    options = f"-isystem {headers} -include old_glibc.h -L{libraries} -Wl,-rpath-link={search}"
    gcc.write_text(f'#!/bin/sh\nexec {plain} {options} "$@"\n')
    gcc.chmod(0o755)
    return gcc


if __name__ == "__main__":
    print(compiler())
