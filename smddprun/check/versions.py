"""The versions of tf_smddp, Python and TensorFlow, read without importing any of them."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import pathlib
import platform
import sys

import smddprun
from smddprun.check.findings import Finding

# All of these distributions bring the package `tensorflow`; setup.py builds against the same ones.
_TENSORFLOWS = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "intel-tensorflow"),
    *("tf-nightly", "tf-nightly-cpu"),
)
_UNKNOWN = "of an unknown version"
_REINSTALL = f"{sys.executable} -m pip install --force-reinstall --no-deps <source or wheel of tf_smddp>"


def find() -> tuple[list[Finding], dict[str, str]]:
    """Returns what there is to say, and the versions that must be the same on all hosts."""
    versions = {"Python": minor(platform.python_version())}
    package = _package("tf_smddp")
    installed = _version("tf_smddp")
    built = None if package is None else built_for(package)
    tensorflow = _tensorflow()
    findings = [Finding("Python", f"{platform.python_version()} ({sys.executable})")]
    engine = _package("smddp")
    if built is None and tensorflow is None and engine is not None and (engine / "libsmddp.so").is_file():
        findings.insert(0, Finding("tf_smddp", f"{installed or _UNKNOWN}, without TensorFlow ({engine})"))
    else:
        findings.insert(0, _tf_smddp(package, installed, built))
        findings.append(_fit(built, tensorflow))
    if installed is not None:
        versions["tf_smddp"] = installed
    if tensorflow is not None:
        versions["TensorFlow"] = tensorflow[1]
    return findings, versions


def built_for(package: pathlib.Path) -> str | None:
    """The version of TensorFlow that the library in a folder was built against; None without a library."""
    if not (package / "_smddp_ops.so").is_file():
        return None
    try:
        tree = ast.parse((package / "_build_info.py").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if names == ["TF_VERSION"]:
                return str(node.value.value)
    return None


def _tf_smddp(package: pathlib.Path | None, installed: str | None, built: str | None) -> Finding:
    if package is None:
        return Finding(
            "tf_smddp",
            f"is not installed for {sys.executable}",
            f"run '{sys.executable} -m pip install .' in the source of tf_smddp",
        )
    if built is None:
        return Finding("tf_smddp", f"has no compiled library in {package}", f"install it: {_REINSTALL}")
    text = f"{installed or _UNKNOWN}, built for TensorFlow {built} ({package})"
    if installed is not None and installed != smddprun.__version__:
        return Finding(
            "tf_smddp",
            f"{text}, but smddprun is {smddprun.__version__} ({smddprun.__path__[0]})",
            f"install both from one source: {_REINSTALL}",
        )
    return Finding("tf_smddp", text)


def _fit(built: str | None, tensorflow: tuple[str, str] | None) -> Finding:
    if tensorflow is None:
        wanted = "tensorflow" if built is None else f"tensorflow=={minor(built)}.*"
        return Finding(
            "TensorFlow",
            f"is not installed for {sys.executable}",
            f"install it: {sys.executable} -m pip install '{wanted}'",
        )
    name, version = tensorflow
    if built is None:
        return Finding("TensorFlow", f"{version} (package {name})")
    if minor(built) != minor(version):
        return Finding(
            "TensorFlow",
            f"{version} (package {name}) is installed, but tf_smddp was built for {built}, and the two do "
            "not fit",
            f"build tf_smddp for this TensorFlow ({_REINSTALL}), or install the other one: "
            f"{sys.executable} -m pip install '{name}=={minor(built)}.*'",
        )
    return Finding("TensorFlow", f"{version} (package {name}), which fits tf_smddp")


def minor(version: str) -> str:
    """Returns '2.15' for '2.15.1': binary interfaces change with it."""
    return ".".join(version.split(".")[:2])


def _package(name: str) -> pathlib.Path | None:
    """The folder of a package, which is not imported for it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return pathlib.Path(folders[0]) if folders else None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _tensorflow() -> tuple[str, str] | None:
    """The distribution that brings TensorFlow, and its version."""
    if _package("tensorflow") is None:
        return None
    for name in _TENSORFLOWS:
        version = _version(name)
        if version is not None:
            return name, version
    return None
