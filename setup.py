"""Builds tf_smddp: Bazel compiles the libraries, setuptools packs them.

    pip install .   TensorFlow is in the environment: the op library is built against exactly that one.
                    PyTorch is, and TensorFlow is not: only the engine is built, and nothing is required.
                    Neither is: DEFAULT_TF is fetched for the build, and pip then installs it too.
    pip wheel .     The same, as a wheel. It requires the TensorFlow distribution and the minor
                    version that it was built against, since the C++ ABI changes between them.

The engine (libsmddp.so) is built in each case: PyTorch may come into the environment later.

Environment: TF_SMDDP_DEFAULT_TF, which also has TensorFlow fetched where PyTorch is, and what
tools/run_bazel.py reads.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from setuptools import Distribution, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel  # setuptools >= 70.1
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
from run_bazel import bazel_command  # noqa: E402

VERSION = re.search(r'kVersion\[\] = "(.*)"', (ROOT / "kernels/common/version.h").read_text()).group(1)
OP_LIBRARY = "//tf_smddp:_smddp_ops.so"
ENGINE = "//kernels/process:libsmddp.so"
DEFAULT_TF = os.environ.get("TF_SMDDP_DEFAULT_TF") or (
    "tensorflow==2.15.1" if sys.version_info < (3, 12) else "tensorflow==2.21.0"
)

# pip shows it with -v, and where the build fails.
HOW_LONG = (
    "Compiling takes two to four minutes on two cores that do nothing else, if nothing was compiled before. "
    "[n / m] below counts the files."
)

# Asks a Python which TensorFlow it has, and whether it has PyTorch, without importing them. All of these
# bring the package `tensorflow`.
FIND = """
import importlib.metadata, importlib.util
if importlib.util.find_spec("torch"):
    print("torch")
if importlib.util.find_spec("tensorflow"):
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "intel-tensorflow",
                 "tf-nightly", "tf-nightly-cpu"):
        try:
            print(name, importlib.metadata.version(name))
            break
        except importlib.metadata.PackageNotFoundError:
            continue
"""


def find():
    """Returns (distribution, version, environment to run Python in) of TensorFlow; and if PyTorch is there.

    None is in place of a TensorFlow that is not there. pip isolates a build through PYTHONPATH, so without it
    the interpreter sees the environment that is installed into. With it, it sees what was fetched for the
    build.
    """
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    torch = False
    for env in (outside, dict(os.environ)):
        probe = subprocess.run(
            [sys.executable, "-c", FIND], env=env, cwd="/", capture_output=True, text=True, check=False
        )
        found = probe.stdout.split()
        if "torch" in found:
            torch = True
            found.remove("torch")
        if found:
            return (*found, env), torch
    return None, torch


def tf_requirement(found):
    """Returns the requirement of the wheel: the same distribution and the same minor version."""
    if not found:
        return DEFAULT_TF
    name, version, _ = found
    major, minor, rest = version.split(".", 2)
    # A nightly's ABI may change from one day to the next.
    return f"{name}=={major}.{minor}.*" if rest.replace(".post", "").isdigit() else f"{name}=={version}"


FOUND_TF, FOUND_TORCH = find()
ENGINE_ALONE = FOUND_TORCH and not FOUND_TF and "TF_SMDDP_DEFAULT_TF" not in os.environ
TF_REQUIREMENT = tf_requirement(FOUND_TF)
# With later ones, a process that has used s3:// aborts when it ends (tensorflow/io issue 1912). None loads
# with TensorFlow 2.21.
TF_IO = ["tensorflow-io==0.34.0"] if "==2.15." in TF_REQUIREMENT else []


class CleanBuild(build):
    """Starts from an empty folder: setuptools would pack modules that were deleted since the last build."""

    def run(self):
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BazelBuild(build_ext):
    """Runs Bazel and puts the libraries where setuptools would put extensions."""

    def run(self):
        arguments, targets, env = [f"--repo_env=PYTHON_BIN_PATH={sys.executable}"], [ENGINE], None
        against = "without TensorFlow"
        if not ENGINE_ALONE:
            if not FOUND_TF:
                raise SystemExit(
                    f"tf_smddp: {sys.executable} has no TensorFlow to build against. "
                    "Install it first, or leave out --no-build-isolation."
                )
            name, version, env = FOUND_TF
            arguments.append(f"--repo_env=TF_SMDDP_TF={name}=={version}")
            targets.append(OP_LIBRARY)
            against = f"against {name} {version}"
        line = bazel_command("build", [*arguments, *targets])
        print(f"tf_smddp: building {against}: {shlex.join(line)}", flush=True)
        print(f"tf_smddp: {HOW_LONG}", flush=True)
        subprocess.run(line, cwd=ROOT, env=env, check=True)
        bin_dir = subprocess.run(
            bazel_command("info", [*arguments, "bazel-bin"]),
            cwd=ROOT,
            env=env,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.strip()

        for built, library in zip(targets, self.libraries_in(ROOT if self.inplace else self.build_lib)):
            library.parent.mkdir(parents=True, exist_ok=True)
            # Replaced, never overwritten: a process may have the old one mapped.
            library.unlink(missing_ok=True)
            shutil.copyfile(pathlib.Path(bin_dir, built.lstrip("/").replace(":", "/")), library)
            library.chmod(0o755)
        if not ENGINE_ALONE:
            library.with_name("_build_info.py").write_text(
                '"""The TensorFlow that the op library was built against. Written by setup.py."""\n\n'
                f'TF_VERSION = "{version}"\n'
            )

    def libraries_in(self, folder):
        """Returns the paths of the libraries, in the order of their targets."""
        engine = pathlib.Path(folder, "smddp", "libsmddp.so")
        return [engine] if ENGINE_ALONE else [engine, pathlib.Path(folder, "tf_smddp", "_smddp_ops.so")]

    def get_outputs(self):
        libraries = self.libraries_in(self.build_lib)
        return [
            str(path) for path in (*libraries, *(each.with_name("_build_info.py") for each in libraries[1:]))
        ]

    def get_output_mapping(self):
        return {}


class BinaryDistribution(Distribution):
    """A distribution for one platform, though setuptools sees no extension modules."""

    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    """Any Python 3 of this platform: the libraries use TensorFlow's C++ ABI or none, not CPython's."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(
    name="tf_smddp",
    version=VERSION,
    description="Synchronous data parallelism for TensorFlow and PyTorch with the API of SMDDP",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The tf_smddp authors",
    license="Apache-2.0",
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=[
        *find_packages(include=["smddp", "smddprun*", "tf_smddp*", "torch_smddp*"]),
        # `smdistributed` itself is a namespace, which other distributions share: it is no package of ours.
        *(f"smdistributed.{name}" for name in find_packages("smdistributed")),
    ],
    py_modules=["smddpcommon", "torch_smddp_autoload"],
    package_data={
        **{name: ["py.typed"] for name in ("smddp", "tf_smddp")},
        "torch_smddp": ["py.typed", "arena_allocator.cc"],
    },
    python_requires=">=3.9",
    setup_requires=[] if FOUND_TF or ENGINE_ALONE else [DEFAULT_TF],
    install_requires=[*([] if ENGINE_ALONE else [TF_REQUIREMENT]), "cloudpickle>=2.0", "psutil>=5.9"],
    extras_require={
        "examples": ["rich>=13", "scikit-learn>=1.3"],
        "io": TF_IO,
        "mpi": ["mpich>=4.3"],
    },
    entry_points={
        "console_scripts": [
            "smddprun = smddprun.__main__:main",
            "smddpsinglenode = smddprun.__main__:single_node",
        ],
        "torch.backends": ["smddp = torch_smddp_autoload:register"],
    },
    distclass=BinaryDistribution,
    cmdclass={"build": CleanBuild, "build_ext": BazelBuild, "bdist_wheel": Wheel},
    zip_safe=False,
)
