"""The package smddp: collectives in Python over libsmddp.so, in jobs without a framework or NumPy."""

import re
import shutil
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT))
import smddp

BEGIN = """
import array, ctypes, os, signal, sys, threading, time

import smddp

assert not {"tensorflow", "torch", "numpy", "tf_smddp"} & set(sys.modules)
smddp.use_library(sys.argv[1])


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def a_request(collective, memory, count, **more):
    buffer = smddp.Buffer(address_of(memory), 4 * count)
    return smddp.Request(collective, smddp.DType.FLOAT32, [count], output=buffer, **more)


"""


@pytest.fixture
def job(library, run, tmp_path):
    """Runs a script on so many ranks; returns how it ended."""

    def run_script(num_ranks, script):
        (tmp_path / "script.py").write_text(BEGIN + script)
        words = [sys.executable, str(tmp_path / "script.py"), str(library)]
        return run(sys.executable, "-m", "smddprun", "-np", str(num_ranks), *words)

    return run_script


def test_the_functions_are_those_of_the_header():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "kernels" / "process" / "smddp.h").read_text(), flags=re.DOTALL)
    for name, arguments in smddp.library._ARGUMENTS.items():
        (found,) = re.findall(rf"\bsmddp_{name}\(([^)]*)\);", text)
        assert len(arguments) == (0 if found == "void" else found.count(",") + 1), name
    fields = re.search(r"typedef struct smddp_request \{(.*?)\}", text, re.DOTALL)[1]
    declared = re.findall(r"(\w+);", fields)
    assert [name for name, _ in smddp.Request._fields_] == declared


def test_the_job_and_sums(job):
    done = job(
        2,
        """
try:
    smddp.rank()
except RuntimeError as error:
    assert str(error).startswith("smddp.rank() was called before init(). Call smddp.init() once"), error
smddp.init()
rank, size = smddp.rank(), smddp.size()
assert (size, smddp.local_rank(), smddp.local_size()) == (2, rank, 2)

numbers = array.array("d", [rank + 1.0, 10.0])
smddp.allreduce(numbers)
assert list(numbers) == [3.0, 20.0]
numbers = array.array("q", [rank, -rank])
smddp.allreduce(numbers, smddp.ReduceOp.MAX, label="largest", name="largest")
assert list(numbers) == [1, 0]
smddp.broadcast(numbers, root=1)
assert list(numbers) == [1, 0]
smddp.allreduce(array.array("f"))  # without elements
for wrong, kind in ((b"read-only", TypeError), (memoryview(numbers)[::-1], TypeError), ([1.0], TypeError)):
    try:
        smddp.allreduce(wrong)
        raise AssertionError(wrong)
    except kind:
        pass
smddp.barrier()

calls = smddp.stats(reset=True)["collectives"]
assert calls["allreduce"]["calls"] == 3 and calls["barrier"]["calls"] == 1, calls
assert smddp.stats()["collectives"]["allreduce"]["calls"] == 0
smddp.shutdown()
assert not smddp.is_initialized()
try:
    smddp.use_library("/another/libsmddp.so", "torch_smddp")
    raise AssertionError
except RuntimeError as error:
    assert "Import torch_smddp before other packages that use smddp" in str(error), error
print("fine")
""",
    )
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_requests_in_the_arena(job):
    done = job(
        2,
        """
smddp.init()
rank, count = smddp.rank(), 100_000
memory = smddp.allocate(4 * count)
assert smddp.is_in_arena(address_of(memory)) and not smddp.is_in_arena(address_of(bytearray(9)))
values = memoryview(memory).cast("B").cast("f")

# Submitted, with a callback.
values[:] = array.array("f", [rank + 1.0]) * count
ended = threading.Event()
errors = []
a_request(smddp.Collective.ALLREDUCE, memory, count).submit(lambda error: (errors.append(error), ended.set()))
assert ended.wait(30) and errors == [None] and set(values) == {3.0}

# Started, and waited for; twice.
request = a_request(smddp.Collective.BROADCAST, memory, count, root=1, label="from rank 1")
operation = smddp.Operation([request])
operation.wait()
operation.wait()
assert operation.test() and set(values) == {3.0}

# A group, in another order on each rank.
ticket, halves = smddp.draw_ticket(), [smddp.allocate(4), smddp.allocate(4)]
for index in (0, 1) if rank == 0 else (1, 0):
    memoryview(halves[index]).cast("B").cast("f")[0] = 10.0 * index + rank
group = [
    a_request(smddp.Collective.ALLREDUCE, halves[i], 1, op=smddp.ReduceOp.AVERAGE, ticket=(ticket, i, 2))
    for i in ((0, 1) if rank == 0 else (1, 0))
]
for each in (smddp.Operation(group[:1]), smddp.Operation(group[1:])):
    each.wait()
assert [memoryview(half).cast("B").cast("f")[0] for half in halves] == [0.5, 10.5]

# An all-to-all with other numbers of rows, which rows says.
rows = [array.array("f", [1.0, 2.0, 3.0]), array.array("f", [4.0, 5.0])][rank]
result = array.array("f", [0.0] * 3)
request = smddp.Request(
    smddp.Collective.ALLTOALL,
    smddp.DType.FLOAT32,
    [len(rows)],
    splits=[1, len(rows) - 1],
    num_rows=2,
    input=smddp.Buffer(address_of(rows), 4 * len(rows)),
    output=smddp.Buffer(address_of(result), 12),
)
request.run()
expected = [([1.0, 4.0, 0.0], [1, 1]), ([2.0, 3.0, 5.0], [2, 1])]
assert (list(result), request.rows[:2]) == expected[rank]

# A communicator of one rank, and ranks that leave.
alone = smddp.create_communicator([1])
assert (smddp.communicator_rank(alone), smddp.communicator_size(alone)) == (rank - 1, 1)
if rank == 1:
    smddp.barrier(alone)
smddp.remove_communicator(alone)
assert smddp.communicator_size(alone) == 0
# And communicators that their members make alone, in no common order.
keys = {1 + rank: [rank], 7: [1, 0]}
for key in sorted(keys, reverse=rank == 1):
    keys[key] = smddp.create_communicator_among(keys[key], key)
own, both = keys[1 + rank], keys[7]
assert (smddp.communicator_size(own), smddp.communicator_rank(both)) == (1, rank)
ones = array.array("f", [1.0])
smddp.allreduce(ones, communicator=both)
assert ones[0] == 2.0
smddp.remove_communicator(both)
assert smddp.communicator_size(both) == 0
assert smddp.leave_and_return([smddp.WORLD]) in (0, 1)

del values, memory, halves, request, operation, group, each
assert smddp.stats()["arena_used_bytes"] == 0
trace = f"trace.{rank}.json"
smddp.start_timeline(trace)
smddp.barrier()
smddp.stop_timeline()
assert "barrier" in open(trace).read()
print("fine")
""",
    )
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_ranks_that_disagree(job):
    """All get the error, and go on."""
    done = job(
        2,
        """
smddp.init()
rank = smddp.rank()
try:
    smddp.allreduce(array.array("f", [1.0] * (3 + rank)), label="weights")
    raise AssertionError
except RuntimeError as error:
    text = str(error)
for side in (0, 1):
    assert f"rank {side} has allreduce 'weights' sum float32 [{3 + side}]" in text, text
try:
    smddp.allreduce(array.array("f", [1.0]), name=f"of {rank}")
    raise AssertionError
except RuntimeError as error:
    assert "of 0" in str(error) and "of 1" in str(error), error
other = smddp.create_communicator([0, 1])
if rank == 0:
    smddp.barrier(other)  # rank 1 waits in the communicator of all
    smddp.fail(smddp.WORLD, "there is no data")
else:
    operation = smddp.Operation([smddp.Request(smddp.Collective.BARRIER)])
    smddp.barrier(other)
    try:
        operation.wait()
        raise AssertionError
    except RuntimeError as error:
        assert "rank 0" in str(error) and "there is no data" in str(error), error
smddp.barrier()
print("fine")
""",
    )
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stdout + done.stderr


def test_a_timeout_of_a_request(job):
    """It ends the wait for a rank that makes progress."""
    done = job(
        2,
        """
smddp.init()
other = smddp.create_communicator_among([smddp.rank()], smddp.rank())
begin = time.monotonic()
if smddp.rank() == 1:
    while time.monotonic() < begin + 20:
        smddp.barrier(other)
try:
    smddp.Request(smddp.Collective.BARRIER, label="late", timeout=1.0).run()
except RuntimeError as error:
    assert "the request's timeout of 1.0 s is over: rank 0 has waited 1." in str(error), error
    assert "for rank 1 at barrier 'late'" in str(error), error
    assert time.monotonic() < begin + 10
    print("fine")
    raise
""",
    )
    assert done.returncode != 0 and "fine" in done.stdout, done.stdout + done.stderr


def test_a_rank_that_is_killed_is_named(job):
    done = job(
        2,
        """
smddp.init()
smddp.barrier()
if smddp.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
memory = smddp.allocate(4)
ended = threading.Event()
a_request(smddp.Collective.ALLREDUCE, memory, 1).submit(lambda error: (print("said:", error), ended.set()))
assert ended.wait(30)
smddp.barrier()
""",
    )
    assert done.returncode == 137, done.stdout + done.stderr
    assert re.search(r"said: .*rank 1 \(pid \d+\) was killed by signal 9", done.stdout), str(done)
    assert "[tf_smddp rank 0 error] stopped in script.py" in done.stderr, done.stderr


def test_an_exception_ends_the_job(job):
    """With a request that is pending, whose callback is called before Python ends."""
    done = job(
        2,
        """
smddp.init()
memory, other = smddp.allocate(4), smddp.create_communicator([0, 1])
if smddp.rank() == 1:
    a_request(smddp.Collective.ALLREDUCE, memory, 1).submit(lambda error: print("ended with", error))
    raise ValueError("no data")
smddp.barrier(other)
""",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ended with allreduce" in done.stdout, done.stdout + done.stderr
    assert re.search(r"rank 0 error\] .*\brank 1\b", done.stderr), done.stdout + done.stderr
    assert "rank 1 failed first" in done.stderr, done.stderr


def test_without_the_library(run):
    done = run(sys.executable, "-c", "import smddp; smddp.init()")
    assert done.returncode == 1
    assert re.search(r"ImportError: the engine's library is missing: .*/smddp/libsmddp.so", done.stderr), done


def test_the_launchers_check(library, run, tmp_path):
    """Of an installation without TensorFlow: the engine lies in the package."""
    shutil.copytree(ROOT / "smddp", tmp_path / "smddp", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(library, tmp_path / "smddp")
    (tmp_path / "tensorflow.py").unlink()
    done = run(sys.executable, "-m", "smddprun", "--check")
    assert re.search(r"^  tf_smddp +\S.*, without TensorFlow \(.*/smddp\)$", done.stdout, re.MULTILINE), done
    assert re.search(r"^  self test +2 ranks .* are right", done.stdout, re.MULTILINE), done.stdout
    assert "TensorFlow  " not in done.stdout
