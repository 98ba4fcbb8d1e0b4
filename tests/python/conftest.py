"""Shared by all Python tests: the marks that select tests, TensorFlow's log level, the engine's strictness.

The marks are described in pyproject.toml. A test that a mark leaves out is deselected before the run, on all
ranks alike, so a test that has passed is one that ran. run_tests.py checks that each test was selected
somewhere.
"""

import collections
import importlib.metadata
import os
import pathlib
import zlib

# TensorFlow logs errors only, here and in the processes that tests start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A lost wake-up, which would only cost time, ends the job with an error.
os.environ["SMDDP_TEST_STRICT"] = "1"


def pytest_addoption(parser):
    parser.addoption("--left-out", metavar="FILE", help="writes the names of the deselected tests to FILE")
    parser.addoption(
        "--half-of-the-cases",
        choices=["first", "second"],
        help="runs half of each test's cases, the same on all ranks",
    )


def number_of_ranks():
    """How many ranks run these tests, as smddprun or MPI's launcher says; 1 without a launcher."""
    names = ("SMDDP_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    return int(next((os.environ[name] for name in names if os.environ.get(name)), "1"))


def keras_version():
    """The major version of `tf.keras`, without importing TensorFlow; None if there is no Keras."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        return 2
    try:
        return int(importlib.metadata.version("keras").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return None


def runs_here(item, ranks, keras):
    """Whether the marks of a test allow this number of ranks and this Keras."""
    allowed = {
        "min_ranks": lambda least: ranks >= least,
        "max_ranks": lambda most: ranks <= most,
        "keras": lambda major: keras == major,
    }
    return all(allows(*mark.args) for name, allows in allowed.items() for mark in item.iter_markers(name))


def half_of_the_cases(items, half):
    """Returns of each test's cases (its parameters) every second one, and all of what runs nowhere else.

    The other half has the others. The order is that of checksums, so that each half has cases of all kinds.
    """
    cases, chosen = collections.defaultdict(list), set()
    for item in items:
        runs_nowhere_else = any(
            item.get_closest_marker(name) for name in ("all_cases", "keras", "min_ranks", "one_tensorflow")
        )
        # The families of optimizers are those of a version of Keras.
        if not hasattr(item, "callspec") or "family" in item.callspec.params or runs_nowhere_else:
            chosen.add(item)
        else:
            cases[item.nodeid.partition("[")[0]].append(item)
    for each in cases.values():
        each.sort(key=lambda item: zlib.crc32(item.name.encode()))
        chosen.update(each if len(each) == 1 else each[("first", "second").index(half) :: 2])
    return chosen


def pytest_itemcollected(item):
    """`-k three_ranks` selects the tests that two ranks are too few for."""
    if any(mark.args[0] >= 3 for mark in item.iter_markers("min_ranks")):
        item.extra_keyword_matches.add("three_ranks")


def pytest_collection_modifyitems(config, items):
    ranks, keras = number_of_ranks(), keras_version()
    here = [runs_here(item, ranks, keras) for item in items]
    half = config.getoption("--half-of-the-cases")
    if half is not None:
        chosen = half_of_the_cases(items, half)
        here = [runs and item in chosen for item, runs in zip(items, here)]
    if not all(here):
        config.hook.pytest_deselected(items=[item for item, runs in zip(items, here) if not runs])
        items[:] = [item for item, runs in zip(items, here) if runs]


class LeftOut:
    """Writes the names of the deselected tests, as JUnit files have them, but for those that are `long`."""

    def __init__(self, path):
        self.path = path

    def pytest_deselected(self, items):
        with open(self.path, "a") as file:
            for item in items:
                if not item.get_closest_marker("long"):
                    path, _, name = item.nodeid.partition("::")
                    file.write(f"{path.removesuffix('.py').replace('/', '.')}.{name}\n")


def pytest_configure(config):
    if config.getoption("--left-out"):
        config.pluginmanager.register(LeftOut(pathlib.Path(config.getoption("--left-out"))))
