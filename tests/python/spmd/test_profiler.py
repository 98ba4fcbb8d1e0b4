"""start_profiler and stop_profiler: Chrome traces."""

import json
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from marked_processes import environ_outside_jobs
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tf_smddp as sdp


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "trace.json"
    yield path
    sdp.stop_profiler()


def events_in(file, rank):
    return json.loads(file.with_name(f"trace.rank{rank}.json").read_text())


def test_a_training_step(rank, size, file):
    weight = tf.Variable(tf.ones([1000]), name="kernel")

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight)
        gradient = sdp.DistributedGradientTape(tape).gradient(loss, weight)
        return gradient, sdp.oob_allreduce(loss, name="loss")

    step()
    sdp.start_profiler(file)
    for _ in range(3):
        step()
    sdp.stop_profiler()
    step()

    first, *events = events_in(file, rank)
    assert (first["name"], first["args"]) == ("process_name", {"name": f"rank {rank}"})
    assert {event["pid"] for event in events} == {rank}
    spans = {}
    for event in events:
        assert event["cat"] == "allreduce"
        spans.setdefault((event["id"], event["name"]), []).append(event)
    for begin, end in spans.values():
        assert (begin["ph"], end["ph"]) == ("b", "e")
        assert begin["ts"] <= end["ts"]
    names = [name for _, name in spans]
    assert names.count("kernel") == names.count("loss/0") == 3
    assert names.count("wait for ranks") == 6
    sizes = {name: begin["args"]["bytes"] for (_, name), (begin, _) in spans.items() if "args" in begin}
    assert sizes == {"kernel": 4000, "loss/0": 4}


def test_again_and_with_a_path_of_its_own(rank, file):
    for name in ("first", "second"):
        sdp.start_profiler(f"{file}.{rank}", append_rank=False)
        sdp.oob_allreduce(1.0, name=name)
        sdp.stop_profiler()
        sdp.stop_profiler()
        text = file.with_name(f"trace.json.{rank}").read_text()
        assert text.count(f'"{name}/0"') == 2
    assert "first" not in text


def test_errors(file):
    with pytest.raises(TypeError):
        sdp.start_profiler(3)
    with pytest.raises(RuntimeError, match=r"nowhere/trace.*No such file"):
        sdp.start_profiler("/nowhere/trace.json")
    sdp.start_profiler(file)
    with pytest.raises(RuntimeError, match=r"being written to .* already; stop it first"):
        sdp.start_profiler(file)


@pytest.mark.long
@pytest.mark.one_tensorflow
def test_the_end_of_the_process_ends_it(rank, tmp_path):
    script = "import tf_smddp as sdp; sdp.init(); sdp.start_profiler('trace.json'); sdp.oob_allreduce(1.0)"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environ_outside_jobs(), check=True)
    assert len(events_in(tmp_path / "trace.json", 0)) == 7


def events_of_tensorflow(folder):
    """Returns the names and durations in seconds of the events in a trace of TensorFlow's own profiler."""
    (file,) = folder.glob("**/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    return [
        (plane.event_metadata[event.metadata_id].name, event.duration_ps * 1e-12)
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    ]


@pytest.mark.cpu_only("TensorFlow's profiler needs CUPTI")
def test_tensorflows_own_profiler(rank, size, tmp_path):
    weight = tf.Variable(tf.ones([1000]))

    @tf.function
    def step():
        if rank == size - 1:  # the other ranks wait for this one
            tf.numpy_function(lambda: time.sleep(0.1), [], [])
        return sdp.allreduce(weight, 0, 1, name="of_a_step")

    step()
    tf.profiler.experimental.start(str(tmp_path))
    for _ in range(3):
        step()
    sdp.grouped_allreduce([weight, weight])
    tf.profiler.experimental.stop()
    events = events_of_tensorflow(tmp_path)
    assert sum(name.startswith("SmddpGroupedAllreduce until done: ") for name, _ in events) == 1
    seconds = [time for name, time in events if name == "SmddpAllreduce until done: of_a_step"]
    assert len(seconds) == 3
    assert all(0.05 < each < 60 for each in seconds) or rank == size - 1, seconds
