"""This tree keeps the layering rules, and each rule finds the violations that it is there to find."""

import pathlib
import subprocess

import layering
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    """A small tree that breaks no rule."""
    write(
        tmp_path,
        "kernels/common/config.cc",
        '#include <cstdlib>\n\nconst char* v = std::getenv("SMDDP_RANK");\n',
    )
    write(
        tmp_path,
        "kernels/memory/arena.h",
        '#include "kernels/common/types.h"\n#include "kernels/memory/span.h"\n',
    )
    write(
        tmp_path,
        "kernels/memory/BUILD",
        'visibility = ["//kernels/engine:__pkg__"]\ndeps = ["//kernels/common:types"]\n',
    )
    write(
        tmp_path,
        "kernels/tf/kernel.cc",
        '#include "kernels/engine/engine.h"\n#include "tensorflow/core/framework/op.h"\n',
    )
    write(tmp_path, "kernels/collectives/backends/ring/ring.h", "class Ring : public Transfer {};\n")
    write(tmp_path, "kernels/engine/runner.cc", "// Ring takes all.\nTransfer* transfer;\n")
    write(tmp_path, "smddp/library.py", "import ctypes\nfrom smddp.requests import Request\n")
    write(tmp_path, "tf_smddp/__init__.py", "import numpy\nimport smddp\n")
    write(tmp_path, "ops/ops.cc", '#include "tensorflow/core/framework/op.h"\n')
    write(tmp_path, "tests/cpp/engine_test.cc", '#include "kernels/engine/engine.h"\n')
    return tmp_path


def write(root: pathlib.Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_classes_of_one_name(tree):
    """Those of unnamed namespaces, members and declarations are no classes of that name."""
    write(tree, "kernels/tf/a.h", "namespace ours {\nclass B;\nstruct Call final : public Base {\n};\n}\n")
    write(tree, "kernels/tf/b.cc", "namespace ours {\nnamespace {\nclass Call {};\n}\nvoid f(Call& c) {}\n}")
    write(tree, "kernels/tf/c.cc", "namespace ours {\nclass Outer {\n struct Call {};\n};\n}\nclass Call {};")
    write(tree, "kernels/tf/d.cc", "namespace others {\nstruct Call { int x; };\n}\n")
    assert layering.class_names(tree) == []
    write(tree, "kernels/memory/z.h", "namespace ours {\n\nstruct alignas(64) Call {\n};\n}\n")
    (found,) = layering.class_names(tree)
    assert "kernels/tf/a.h:3: another class ours::Call is in kernels/memory/z.h" in found


@pytest.mark.parametrize("rule", layering.RULES, ids=lambda rule: rule.__name__)
def test_this_tree(rule):
    assert (ROOT / "kernels").is_dir()
    assert rule(ROOT) == []


@pytest.mark.parametrize("rule", layering.RULES, ids=lambda rule: rule.__name__)
def test_the_small_tree_is_clean(tree, rule):
    assert rule(tree) == []


@pytest.mark.parametrize(
    ("rule", "name", "text", "expected"),
    [
        (
            layering.tensorflow_headers,
            "kernels/engine/e.cc",
            '#include "tensorflow/core/platform/status.h"',
            "e.cc:1",
        ),
        (layering.tensorflow_headers, "kernels/common/e.h", "//\n#  include <absl/status/status.h>", "e.h:2"),
        (layering.tensorflow_headers, "kernels/reduce/e.h", '#include "Eigen/Core"', "Eigen/Core"),
        (layering.tensorflow_headers, "tests/cpp/e_test.cc", '#include "tsl/platform/env.h"', "e_test.cc:1"),
        (layering.tensorflow_headers, "tests/pretend_gpu/e.cc", '#include "Eigen/Core"', "e.cc:1"),
        (layering.layer_order, "kernels/memory/m.h", '#include "kernels/engine/engine.h"', "engine above it"),
        (
            layering.layer_order,
            "kernels/control/c.cc",
            '#include "kernels/fusion/bucket.h"',
            "fusion above it",
        ),
        (
            layering.layer_order,
            "kernels/collectives/backends/shared_memory/b.cc",
            '#include "kernels/tf/x.h"',
            "tf above it",
        ),
        (layering.layer_order, "kernels/engine/e.cc", '#include "kernels/utils/u.h"', "no layer"),
        (layering.layer_order, "kernels/utils/u.h", '#include "kernels/common/types.h"', "no layer"),
        (layering.layer_order, "kernels/tf/k.cc", '#include "ops/op.h"', "nothing from ops/"),
        (layering.layer_order, "kernels/tf/k.cc", '#include "../engine/engine.h"', "write kernels/<layer>"),
        (layering.layer_order, "ops/o.cc", '#include "kernels/common/types.h"', "dtype_table.h alone"),
        (layering.layer_order, "kernels/common/BUILD", 'deps = ["//kernels/reduce"]', "reduce above it"),
        (layering.backends_by_name, "kernels/engine/e.cc", '#include "kernels/cuda/device.h"', "e.cc:1"),
        (layering.backends_by_name, "kernels/control/c.h", '#include "kernels/mpi/runtime.h"', "c.h:1"),
        (
            layering.backends_by_name,
            "kernels/engine/e.cc",
            '\n#include "kernels/collectives/backends/nccl/nccl_calls.h"',
            "engine uses backends through",
        ),
        (layering.backends_by_name, "kernels/engine/e.cc", "\nRing ring;", "e.cc:2: names Ring"),
        (layering.backends_by_name, "kernels/fusion/f.h", "void F(cuda::Stream stream);", "names cuda::"),
        (layering.environment, "kernels/engine/e.cc", 'int a;\nauto v = getenv("HOME");', "e.cc:2"),
        (layering.environment, "kernels/tf/k.cc", 'auto v = secure_getenv("HOME");', "k.cc:1"),
        (layering.environment, "ops/o.cc", "extern char** environ;", "o.cc:1"),
        (layering.python_imports, "smddp/a.py", "def f():\n    import numpy.linalg", "a.py:2: imports numpy"),
        (layering.python_imports, "smddp/b/a.py", "from torch import nn\n", "imports torch"),
        (layering.python_imports, "smddp/a.py", "import os, tf_smddp.keras as x\n", "tf_smddp.keras"),
        (layering.outside_paths, "docs/a.md", "text\nsee ../" + "shared/DESIGN.md", "a.md:2"),
        (layering.outside_paths, "tools/a.sh", "cp /work/" + "shared/x .", "a.sh:1"),
    ],
)
def test_a_violation_is_found(tree, rule, name, text, expected):
    write(tree, name, text)
    assert [line for line in rule(tree) if expected in line], rule(tree)


def test_comments_and_strings_do_not_read_the_environment(tree):
    write(tree, "kernels/engine/e.cc", '// getenv\n/* environ\n */\nconst char* help = "getenv(3)";\n')
    assert layering.environment(tree) == []


def test_git_knows_no_file_that_the_rules_skip():
    """Files that outside_paths leaves out (caches, build output) must never be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *layering.NOT_OURS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert listed.stdout == ""
