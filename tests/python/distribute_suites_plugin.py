"""Has pytest run tests of tf.distribute with our Strategy, on each rank: what distribute_suites.py starts.

A rank writes what became of each test into record-RANK. Ranks meet after each test, so that one which fails
on one rank does not shift the next ones. A test that ends the job is noted, and another job goes on after it.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import sys
from typing import Any, Iterator, List, Tuple

import keras.src.distribute
import pytest
import tensorflow as tf
from absl import flags
from tensorflow.python.distribute import combinations as harness

import tf_smddp as sdp

END = "the end of the file"
LIMIT_S = 300  # for a test
WORKERS, DEVICES = "MultiWorkerMirrored2x1CPU", "MirroredCPUAndGPU"
# Not what calls a test's functions for it, such as AutoGraph, and not what tests share.
LIBRARIES = re.compile(r"(tf_smddp|keras|tensorflow\.python\.(distribute|keras))\.(?!.*test)")


class MultiWorkerMirroredStrategy(sdp.distribute.Strategy):
    """Ours by the name that some tests ask for."""


class InOneProcess(sdp.distribute.Strategy):
    """Gives a test the values of all replicas, as MirroredStrategy does."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def experimental_local_results(self, value: Any) -> Tuple[Any, ...]:
        """Gathers the values, if a test asks, and not a library. Collective."""
        local: Tuple[Any, ...] = super().experimental_local_results(value)
        caller = sys._getframe(2).f_globals["__name__"]  # the first one is do_not_convert's
        if LIBRARIES.match(caller):
            return local
        parts = tf.nest.flatten(local[0], expand_composites=True)
        if not all(isinstance(part, tf.Tensor) for part in parts):
            return local  # a variable, an operation
        gathered = zip(*map(of_all_ranks, parts))
        return tuple(tf.nest.pack_sequence_as(local[0], each, expand_composites=True) for each in gathered)


def of_all_ranks(tensor: tf.Tensor) -> List[tf.Tensor]:
    """Gathers tensors whose shapes may differ between ranks."""
    shapes = sdp.allgather(tf.shape(tensor)[tf.newaxis])
    sizes = tf.reduce_prod(shapes, axis=1)
    elements = tf.split(sdp.allgather(tf.reshape(tensor, [-1])), sizes, num=sdp.size())
    return [tf.reshape(each, shapes[rank]) for rank, each in enumerate(elements)]


keras.src.distribute.__path__.append(str(pathlib.Path("others").resolve()))
flags.FLAGS.mark_as_parsed()  # pytest's command line is not the tests'
harness._multi_worker_session = lambda _: contextlib.nullcontext()  # no session of a server: ours has none
combinations = tf.__internal__.distribute.combinations
for named, strategy in (
    (combinations.multi_worker_mirrored_2x1_cpu, MultiWorkerMirroredStrategy),
    (combinations.mirrored_strategy_with_gpu_and_cpu, InOneProcess),
):
    named._distribution_fn = strategy
    named.required_gpus, named.has_chief, named._pool_runner_fn = 0, False, None
# Some tests make two devices, for which it is too late then.
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
sdp.init()
# Tests look there for what a worker must get.
names = [f"rank{rank}:0" for rank in range(sdp.size())]
task = {"type": "worker", "index": sdp.rank() - 1} if sdp.rank() else {"type": "chief", "index": 0}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"chief": names[:1], "worker": names[1:]}, "task": task})

already = "".join(path.read_text() for path in pathlib.Path().glob("record-*"))
sdp.barrier()


def note(test: str, outcome: str) -> None:
    """Writes a line, of which the last one for a test counts."""
    with open(f"record-{sdp.rank()}", "a") as record:
        print(json.dumps(test), json.dumps(outcome), sep="\t", file=record)


def pytest_collection_modifyitems(items: List[Any]) -> None:
    names = {item.name for item in items}
    for item in list(items):
        is_ours = WORKERS in item.name or (
            DEVICES in item.name and item.name.replace(DEVICES, WORKERS) not in names
        )
        if not is_ours or json.dumps(item.nodeid) in already:
            items.remove(item)


def pytest_runtest_logstart(nodeid: str) -> None:
    note(nodeid, "the job ended here")
    signal.alarm(LIMIT_S)  # which ends this rank, and the job with it


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed:
        note(report.nodeid, report.longrepr.reprcrash.message.splitlines()[0])
    elif report.when == "call" or report.skipped:
        note(report.nodeid, report.outcome)


def pytest_sessionfinish(exitstatus: int) -> None:
    ends = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if exitstatus in ends:  # not if the file cannot be imported, nor after an error of pytest's own
        note(END, "passed")


@pytest.fixture(autouse=True)
def meet() -> Iterator[None]:
    """Makes each error of one rank one of the others, until all have come here."""
    yield
    for _ in range(10):
        try:
            sdp.oob_allreduce(0.0, name="meet")
            return
        except tf.errors.OpError:
            pass
    os._exit(1)  # the job has ended
