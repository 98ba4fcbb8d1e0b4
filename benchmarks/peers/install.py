"""Functions for the set-up of several peers: Debian packages, virtual environments, compilation."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
from typing import Dict, List, Optional, Sequence

from peers.base import BUILT, ROOT

TENSORFLOW = "2.15.1"  # the last version with which Horovod and MultiWorkerMirroredStrategy work
CPP_FLAGS = ["-std=c++17", "-O3", "-march=native", f"-I{ROOT}"]
CPP_SOURCES = [ROOT / "benchmarks" / "cpp" / name for name in ("fork_ranks.cc", "sweep.cc", "options.cc")]


def run(command: Sequence[object], environment: Optional[Dict[str, str]] = None) -> None:
    """Prints and runs a command; raises CalledProcessError if it fails."""
    words = [str(word) for word in command]
    print("$", shlex.join(words), flush=True)
    subprocess.run(words, check=True, cwd=ROOT, env={**os.environ, **(environment or {})})


def debian(*packages: str) -> None:
    """Installs the missing ones of some Debian packages; needs root, or sudo without a password."""
    state = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Status}\n", *packages], capture_output=True, text=True, check=False
    )
    if state.returncode == 0 and state.stdout.count("install ok installed") == len(packages):
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    run([*root, "apt-get", "update", "-qq"])
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    run([*root, "env", "DEBIAN_FRONTEND=noninteractive", *install])


def venv_python(name: str) -> pathlib.Path:
    """Returns the path of the Python of a peer's virtual environment, which need not exist."""
    return ROOT / ".venv" / f"peer-{name}" / "bin" / "python"


def venv(name: str, requirements: Sequence[str], tensorflow: str = "any") -> pathlib.Path:
    """Creates a virtual environment with `requirements`, unless it exists; returns its Python.

    An environment whose creation did not finish is deleted and created again.

    Args:
        name: the environment is .venv/peer-`name`.
        requirements: the arguments of `pip install`.
        tensorflow: the TensorFlow version that the Python must support.
    """
    python = venv_python(name)
    mark, wanted = python.parent.parent / ".requirements", "\n".join(requirements)
    if mark.exists() and mark.read_text() == wanted:
        return python
    shutil.rmtree(python.parent.parent, ignore_errors=True)
    base = subprocess.run(
        [str(ROOT / "tools" / "choose_python.sh"), tensorflow], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    run([base, "-m", "venv", python.parent.parent])
    run([python, "-m", "pip", "install", "--quiet", *requirements])
    mark.write_text(wanted)
    return python


def package_version(name: str, package: str) -> Optional[str]:
    """Returns the version of a package in a peer's environment, or None."""
    python = venv_python(name)
    if not python.exists():
        return None
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def compile_peer(name: str, compiler: Sequence[object], source: str, flags: Sequence[str] = ()) -> None:
    """Compiles benchmarks/peers/`source` and the files that all sweeps share to .cache/peers/`name`."""
    sources = [ROOT / "benchmarks" / "peers" / source, *CPP_SOURCES]
    headers = [path for name in ("cpp", "peers") for path in (ROOT / "benchmarks" / name).glob("*.h")]
    target = BUILT / name
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    if target.exists() and target.stat().st_mtime > newest:
        return
    BUILT.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".new")
    run([*compiler, *CPP_FLAGS, "-o", unfinished, *sources, *flags])
    unfinished.replace(target)


def tensorflow_requirements() -> List[str]:
    """Returns what pip needs to install TensorFlow; the CPU build, where there is one, is half the size."""
    name = "tensorflow-cpu" if os.uname().machine == "x86_64" else "tensorflow"
    return [f"{name}=={TENSORFLOW}", "numpy<2"]
