"""Runs tests of tf.distribute, TensorFlow's or Keras 2.15's, with our Strategy: CHECKOUT [FILES...] [--np 2].

By hand, since it needs TensorFlow 2.15 and a checkout: of github.com/keras-team/keras at v2.15.0, or of
TensorFlow, whose tests are in Debian's source package of TensorFlow 2.14.1, too. Each rank runs the tests for
MultiWorkerMirroredStrategy with two workers and for MirroredStrategy with two devices, with our strategy in
their place; of a test that is for both, the first. docs/support.md says what passes. The exit code is 1 if a
test fails.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDERS = ("tensorflow/python/distribute", "keras/distribute")
PLUGIN = pathlib.Path(__file__).with_name("distribute_suites_plugin.py")
# What a file names that has cases for several strategies.
CASES = re.compile("strategy_combinations|mirrored_strategy_with_gpu|correctness_test_base|model_test_base")
END = "the end of the file"  # as in the plugin


def text_of(source: pathlib.Path) -> str:
    """Returns a file's text as it must be for Keras's package, which has its modules in keras.src."""
    text = re.sub(r"^(\s*)from keras(\.| import)", r"\1from keras.src\2", source.read_text(), flags=re.M)
    return re.sub(r"^import keras$", "import keras.src as keras", text, flags=re.M)


def run(source: pathlib.Path, ranks: int) -> "dict[str, str]":
    """Runs a file. Returns "passed", "skipped" or the first line of the error for each test."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / source.name).write_text(text_of(source))
        (folder / "others").mkdir()  # where the plugin has Keras find what a file imports of other tests
        for other in source.parent.glob("*_test.py"):
            (folder / "others" / other.name).write_text(text_of(other))
        launcher = [str(pathlib.Path(sys.executable).parent / "smddprun"), "-np", str(ranks)]
        options = ["-q", "-p", PLUGIN.stem, "-p", "no:cacheprovider", "--rootdir", str(folder), source.name]
        # pytest would parse files. Python 3.11.7 failed at that after a test of Keras's had failed:
        # SystemError: AST constructor recursion depth mismatch.
        options += ["--tb=native", "--assert=plain"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PLUGIN.parent), os.environ.get("PYTHONPATH", "")]),
            # A session that ends waits for tf.data's autotuner, which sleeps for up to 60 s.
            "SMDDP_STALL_TIMEOUT": "90",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        outcomes: dict[str, str] = {}
        while END not in outcomes:
            num_before = len(outcomes)
            with open(folder / "log", "wb") as log:
                subprocess.run(
                    [*launcher, sys.executable, "-m", "pytest", *options],
                    cwd=folder,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            for rank in range(ranks):
                record = folder / f"record-{rank}"
                lines = record.read_text().splitlines() if record.exists() else []
                for test, outcome in dict(map(json.loads, line.split("\t")) for line in lines).items():
                    if outcome not in ("passed", "skipped"):
                        outcomes[test] = f"rank {rank}: {outcome}"
                    outcomes.setdefault(test, outcome)
            if len(outcomes) == num_before:
                outcomes[END] = (folder / "log").read_text(errors="replace")[-1500:]
        if outcomes[END] == "passed":
            del outcomes[END]
        return outcomes


def main() -> int:
    """Returns 0 if no test failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("files", nargs="*", help="all of the folder, if none is given")
    parser.add_argument("--np", type=int, default=2, help="number of ranks")
    arguments = parser.parse_args()
    folder = next(arguments.checkout / each for each in FOLDERS if (arguments.checkout / each).exists())
    num_failed = 0
    have_cases = (path.name for path in folder.glob("*_test.py") if CASES.search(path.read_text()))
    for name in arguments.files or sorted(have_cases):
        outcomes = run(folder / name, arguments.np)
        failed = {test: text for test, text in outcomes.items() if text not in ("passed", "skipped")}
        counts = [list(outcomes.values()).count(outcome) for outcome in ("passed", "skipped")]
        print(f"{name}: {counts[0]} passed, {len(failed)} failed, {counts[1]} skipped", flush=True)
        for test, text in sorted(failed.items()):
            print(f"  {test}: {text}", flush=True)
        num_failed += len(failed)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
