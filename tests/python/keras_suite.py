"""Runs Keras 2.15's tests of tf.distribute with our Strategy: keras_suite.py CHECKOUT [FILES...] [--np 2].

By hand, since it needs a checkout of github.com/keras-team/keras at v2.15.0, and TensorFlow 2.15. Each rank
runs the tests that are for MirroredStrategy with two devices, with our strategy in its place. docs/support.md
says what passes. The exit code is 1 if a test fails.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "spmd_pytest.py"
FILES = (
    "checkpointing_test.py",
    "ctl_correctness_test.py",
    "custom_training_loop_metrics_test.py",
    "custom_training_loop_models_test.py",
    "custom_training_loop_optimizer_test.py",
    "distribute_strategy_test.py",
    "keras_dnn_correctness_test.py",
    "keras_embedding_model_correctness_test.py",
    "keras_metrics_test.py",
    "keras_rnn_model_correctness_test.py",
    "keras_save_load_test.py",
    "saved_model_mixed_api_test.py",
    "saved_model_save_load_test.py",
)
LIMIT_S = 1800  # for a file
# Ranks meet after each test, so that one which fails on one rank does not shift the next ones.
CONFTEST = """
import pytest
import tensorflow as tf
import tf_smddp as sdp
from absl import flags

flags.FLAGS.mark_as_parsed()  # pytest's command line is not the tests'
strategy = tf.__internal__.distribute.combinations.mirrored_strategy_with_gpu_and_cpu
strategy._distribution_fn = sdp.distribute.Strategy
strategy.required_gpus = 0
sdp.init()


@pytest.fixture(autouse=True)
def meet():
    yield
    while True:
        try:
            return sdp.barrier()
        except tf.errors.OpError:
            pass
"""


def run(checkout: pathlib.Path, name: str, ranks: int) -> "dict[str, str]":
    """Runs a file. Returns "passed", "skipped" or the first line of the error for each test."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "conftest.py").write_text(CONFTEST)
        text = (checkout / "keras" / "distribute" / name).read_text()
        # The package has its modules in keras.src.
        text = re.sub(r"^(\s*)from keras(\.| import)", r"\1from keras.src\2", text, flags=re.MULTILINE)
        (folder / name).write_text(re.sub(r"^import keras$", "import keras.src as keras", text, flags=re.M))
        launcher = [str(pathlib.Path(sys.executable).parent / "smddprun"), "-np", str(ranks)]
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "-k", "MirroredCPUAndGPU", name]
        with open(folder / "log", "wb") as log:
            subprocess.run(
                [*launcher, sys.executable, str(RUNNER), str(folder), *options],
                cwd=folder,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        outcomes: dict[str, str] = {}
        for rank in range(ranks):
            report = folder / f"rank-{rank}.xml"
            if not report.exists():
                log_lines = (folder / "log").read_text(errors="replace").splitlines()
                raise RuntimeError("\n".join([f"{name} left no report:", *log_lines[-40:]]))
            for case in ElementTree.parse(report).iter("testcase"):
                test = f"{case.get('classname')}.{case.get('name')}"
                found = {child.tag: str(child.get("message")) for child in case}
                error = found.get("failure", found.get("error"))
                if error is not None:
                    outcomes[test] = f"rank {rank}: {error.splitlines()[0]}"
                outcomes.setdefault(test, "skipped" if "skipped" in found else "passed")
        return outcomes


def main() -> int:
    """Returns 0 if no test failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--np", type=int, default=2, help="number of ranks")
    arguments = parser.parse_args()
    num_failed = 0
    for name in arguments.files:
        outcomes = run(arguments.checkout, name, arguments.np)
        failed = {test: text for test, text in outcomes.items() if text not in ("passed", "skipped")}
        counts = [list(outcomes.values()).count(outcome) for outcome in ("passed", "skipped")]
        print(f"{name}: {counts[0]} passed, {len(failed)} failed, {counts[1]} skipped", flush=True)
        for test, text in sorted(failed.items()):
            print(f"  {test}: {text}", flush=True)
        num_failed += len(failed)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
