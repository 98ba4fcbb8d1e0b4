"""The rules that keep the layers apart, each as a function from a source tree to its violations.

A violation is one line of text, `file:line: what is wrong and what to do`. test_layering.py applies the rules
to this tree, and shows for each rule that it finds what it is there to find. Standard library only.
"""

import ast
import os
import pathlib
import re
from typing import Dict, Iterator, List, Optional, Tuple

# From the top down. A layer may use itself and what stands to the right of it.
LAYERS = [
    "tf",
    "process",
    "engine",
    "fusion",
    "control",
    "collectives",
    "cuda",
    "memory",
    "reduce",
    "mpi",
    "common",
]

# The contents of TensorFlow's include folder.
TENSORFLOW_HEADERS = (
    "absl/",
    "Eigen/",
    "google/protobuf/",
    "ml_dtypes/",
    "tensorflow/",
    "tsl/",
    "unsupported/",
    "xla/",
)
TENSORFLOW_HEADERS += ("third_party/", "external/")

GETENV_FILE = "kernels/common/config.cc"
# The layers that know no backend by name, and what they must not include.
WITHOUT_BACKENDS = ("kernels/engine/", "kernels/fusion/", "kernels/control/")
BACKENDS = ("kernels/collectives/backends/", "kernels/cuda/", "kernels/mpi/")
ABOVE_SMDDP = {
    *("numpy", "tensorflow", "torch"),
    *("smddpcommon", "smddprun", "smdistributed", "tf_smddp", "torch_smddp"),
}
# The one header of kernels/ that ops/ includes.
DTYPE_TABLE = "kernels/common/dtype_table.h"
CPP_FOLDERS = ("kernels", "ops", "tests/cpp", "tests/pretend_gpu", "tests/gpu", "benchmarks")
NOT_OURS = (
    ".cache",
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "build",
    "dist",
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
LABEL = re.compile(r'"//kernels/(\w+)[^"]*"')
GETENV = re.compile(r"\b(?:secure_)?getenv\b|\benviron\b")
# The begin of a namespace, of a class, or of anything else in braces; and the end of each.
SCOPE = re.compile(
    r"\b(?P<keyword>namespace)\s*(?P<namespace>[\w:]*)\s*\{"
    r"|\b(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?(?P<class>\w+)\s*(?:final\s*)?(?::[^:;{}(][^;{}]*)?\{"
    r"|[{}]"
)
# The interfaces that backends implement, and where those have their names.
IMPLEMENTATION = re.compile(r"\bclass (\w+) : public (?:Transfer|Backend|DeviceKeeper|MemoryKind|Wire)\b")
BACKEND_NAMESPACES = ("cuda::", "nccl::", "mpi::")
# In two pieces, so that this file does not mention what it forbids.
OUTSIDE = re.compile(r"\.\./" + r"shared\b|/work/" + r"shared\b")


def cpp_files(root: pathlib.Path, folders: Tuple[str, ...] = CPP_FOLDERS) -> List[pathlib.Path]:
    """Returns the C++ files under the given folders."""
    return sorted(
        path for folder in folders for end in ("*.h", "*.cc") for path in (root / folder).rglob(end)
    )


def numbered_lines(path: pathlib.Path) -> Iterator[Tuple[int, str]]:
    """Yields (line number, text) of a text file; nothing for a binary one."""
    try:
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    except UnicodeDecodeError:
        return


def without_comments(text: str) -> str:
    """Blanks comments and string literals of C++; keeps the line breaks, so that line numbers stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.DOTALL)


def includes(root: pathlib.Path, folders: Tuple[str, ...]) -> Iterator[Tuple[str, str, str]]:
    """Yields (place, path of the including file, included path) of every include."""
    for path in cpp_files(root, folders):
        name = path.relative_to(root).as_posix()
        for number, line in numbered_lines(path):
            match = INCLUDE.match(line)
            if match:
                yield f"{name}:{number}", name, match.group(2)


def layer_of(path: str) -> str:
    """Returns the layer in a path such as kernels/engine/engine.h, or "" for a path outside kernels/."""
    parts = path.split("/")
    return parts[1] if parts[0] == "kernels" and len(parts) > 2 else ""


def tensorflow_headers(root: pathlib.Path) -> List[str]:
    """TensorFlow's headers appear in ops/ and kernels/tf/ alone, and where its GPU kernels have twins."""
    allowed = ("ops/", "kernels/tf/", "tests/pretend_gpu/tensorflow/")
    return [
        f"{place}: includes {included}; only {', '.join(allowed)} may include what comes with TensorFlow"
        for place, name, included in includes(root, CPP_FOLDERS)
        if included.startswith(TENSORFLOW_HEADERS) and not name.startswith(allowed)
    ]


def layer_order(root: pathlib.Path) -> List[str]:
    """A layer includes, and its BUILD files name, only itself and those below; ops/ uses but one table."""
    found = []
    for place, name, included in includes(root, ("kernels", "ops")):
        if name.startswith("ops/"):
            if included.startswith("kernels/") and included != DTYPE_TABLE:
                found.append(
                    f"{place}: includes {included}; ops/ holds op definitions, and of kernels/ includes "
                    f"{DTYPE_TABLE} alone"
                )
        elif included.startswith(("ops/", "tests/", ".")) or "/../" in included:
            found.append(
                f"{place}: includes {included}; write kernels/<layer>/…, and nothing from ops/ or tests/"
            )
        elif included.startswith("kernels/"):
            found += order_violation(place, layer_of(name), layer_of(included), included)
    # kernels/BUILD itself has the groups of layers for Bazel's visibility, which name all of them.
    for path in sorted((root / "kernels").glob("*/**/BUILD")):
        name = path.relative_to(root).as_posix()
        for number, line in numbered_lines(path):
            for match in LABEL.finditer(line.split("#")[0]):
                # Visibility names the layers above.
                if not match.group().endswith(('__pkg__"', '__subpackages__"')):
                    found += order_violation(
                        f"{name}:{number}", layer_of(name), match.group(1), match.group()
                    )
    return found


def order_violation(place: str, user: str, used: str, text: str) -> List[str]:
    """Returns the violation, if any, of the layer `user` using the layer `used`."""
    for layer in (user, used):
        if layer not in LAYERS:
            return [f"{place}: kernels/{layer} is no layer; the layers are {' > '.join(LAYERS)}"]
    if LAYERS.index(used) < LAYERS.index(user):
        return [
            f"{place}: {user} uses {text} of the layer {used} above it; the order is {' > '.join(LAYERS)}"
        ]
    return []


def backends_by_name(root: pathlib.Path) -> List[str]:
    """The engine and what is below it know backends by their interfaces: they include none, and name none."""
    found = [
        f"{place}: includes {included}; {name.split('/')[1]} uses backends through "
        "kernels/collectives/backend.h, kernels/common/wire.h and kernels/memory/buffer.h"
        for place, name, included in includes(root, WITHOUT_BACKENDS)
        if included.startswith(BACKENDS)
    ]
    files = cpp_files(root, ("kernels",))
    texts = {path: without_comments(path.read_text(encoding="utf-8")) for path in files}
    names = {match.group(1) for text in texts.values() for match in IMPLEMENTATION.finditer(text)}
    words = [name + r"\b" for name in sorted(names)] + list(BACKEND_NAMESPACES)
    named = re.compile(r"\b(?:" + "|".join(words) + ")")
    for path, text in texts.items():
        name = path.relative_to(root).as_posix()
        if not name.startswith(WITHOUT_BACKENDS):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = named.search(line)
            if match:
                found.append(f"{name}:{number}: names {match.group()}; use its interface")
    return found


def environment(root: pathlib.Path) -> List[str]:
    """Only config.cc reads the environment."""
    found = []
    for path in cpp_files(root, ("kernels", "ops")):
        name = path.relative_to(root).as_posix()
        if name == GETENV_FILE:
            continue
        for number, line in enumerate(without_comments(path.read_text(encoding="utf-8")).splitlines(), 1):
            match = GETENV.search(line)
            if match:
                found.append(
                    f"{name}:{number}: uses {match.group()}; only {GETENV_FILE} reads the environment"
                )
    return found


def outside_paths(root: pathlib.Path) -> List[str]:
    """Nothing refers to a folder beside the repository."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in NOT_OURS and not name.startswith("bazel-") and name[-9:] != ".egg-info"
        )
        for file in sorted(files):
            path = pathlib.Path(folder) / file
            if path.is_symlink() or path.suffix == ".so":
                continue
            for number, line in numbered_lines(path):
                match = OUTSIDE.search(line)
                if match:
                    found.append(
                        f"{path.relative_to(root)}:{number}: {match.group()} is outside the repository"
                    )
    return found


def python_imports(root: pathlib.Path) -> List[str]:
    """The package smddp imports no framework and no NumPy, and nothing that builds on it."""
    found = []
    for path in sorted((root / "smddp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            found += [
                f"{path.relative_to(root)}:{node.lineno}: imports {name}; smddp/ is below all packages, and "
                "without a framework"
                for name in names
                if name.partition(".")[0] in ABOVE_SMDDP
            ]
    return found


def class_names(root: pathlib.Path) -> List[str]:
    """A class of a named namespace is defined once: two of one name have one destructor for the linker."""
    found = []
    first: Dict[str, str] = {}
    for path in cpp_files(root, ("kernels", "ops")):
        text = without_comments(path.read_text(encoding="utf-8"))
        # For each open brace: a namespace, "" if it has no name, None if it is something else.
        scopes: List[Optional[str]] = []
        for match in SCOPE.finditer(text):
            if match.group() == "}":
                del scopes[-1:]
                continue
            names = [scope for scope in scopes if scope]
            if match.group("class") and len(names) == len(scopes):
                name = "::".join([*names, match.group("class")])
                file = path.relative_to(root).as_posix()
                line = text.count("\n", 0, match.start()) + 1
                # In one file, it is there for each of several systems, or the compiler refuses it.
                if first.setdefault(name, file) != file:
                    found.append(f"{file}:{line}: another class {name} is in {first[name]}; rename one")
            is_namespace = match.group("keyword") is not None
            scopes.append((match.group("namespace") or "") if is_namespace else None)
    return found


RULES = [
    tensorflow_headers,
    layer_order,
    backends_by_name,
    environment,
    outside_paths,
    python_imports,
    class_names,
]
