"""Runs torch's own tests of torch.distributed on the backend smddp: torch_suite.py [--np 2 3].

They are DistributedTest in torch/testing/_internal/distributed/distributed_test.py, which torch's wheel has.
torch starts new processes for each test; here the ranks of one job run them all, each with a process group of
its own. A job that dies or hangs in a test is started again for the tests behind it.

A test that Gloo passes must pass, or be in torch_suite.toml with its reason. Else the exit code is 1.
It is 1, too, if a test that is listed there passes.
"""

import argparse
import ast
import collections
import faulthandler
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
import unittest
from typing import Dict, List, Optional, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

KNOWN = pathlib.Path(__file__).with_suffix(".toml")
TEST_LIMIT_S = 120
JOB_LIMIT_S = 3600
# They choose a model by the backend's name, and have none for one that torch does not know.
ONLY_KNOWN_BACKENDS = (
    "test_accumulate_gradients_no_sync",
    "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_accumulate_gradients_no_sync_grad_is_view",
)


def run_tests(
    backend: str, ranks: int, tests: Sequence[str] = (), log: Optional[pathlib.Path] = None
) -> Dict[str, str]:
    """Runs tests, or all, in jobs of so many ranks.

    Args:
        backend: "smddp" or "gloo".
        ranks: how many.
        tests: their names; () is all.
        log: a file for what the ranks write.

    Returns:
        The outcome of each: "passed", "skipped", "failed" or "died", the worst of the ranks'.
    """
    outcomes: Dict[str, str] = {}
    left = list(tests) or all_tests()
    while left:
        with tempfile.TemporaryDirectory(prefix="torch-suite-") as folder:
            command = [sys.executable, "-m", "smddprun", "-np", str(ranks), sys.executable, __file__]
            environment = {
                **os.environ,
                "BACKEND": backend,
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
            }
            names = pathlib.Path(folder) / "tests"
            names.write_text("\n".join(left))
            with open(log or os.devnull, "ab") as output:
                subprocess.run(
                    [*command, "--folder", folder],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=JOB_LIMIT_S,
                    check=False,
                )
            reports = [_report(pathlib.Path(folder) / f"rank-{rank}") for rank in range(ranks)]
        done = [name for name in left if all(name in report for report in reports)]
        for name in done:
            outcomes[name] = max((report[name] for report in reports), key=_ORDER.index)
        if not done:  # the first one has ended the job, and not something that an earlier one has left
            outcomes[left[0]] = "died"
        left = [name for name in left if name not in outcomes]
    return outcomes


_ORDER = ("passed", "skipped", "failed")


def _report(path: pathlib.Path) -> Dict[str, str]:
    return dict(line.split() for line in path.read_text().splitlines()) if path.exists() else {}


def all_tests() -> List[str]:
    """Returns the names of all tests, without importing torch."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    tree = ast.parse((torch / "testing/_internal/distributed/distributed_test.py").read_text())
    (suite,) = [each for each in ast.walk(tree) if getattr(each, "name", "") == "_DistTestBase"]
    return [each.name for each in suite.body if getattr(each, "name", "").startswith("test_")]


def run_rank(folder: pathlib.Path) -> None:
    """Runs the tests that folder/tests names as one rank of a job; writes their outcomes there."""
    backend, rank, size = os.environ["BACKEND"], int(os.environ["SMDDP_RANK"]), int(os.environ["SMDDP_SIZE"])
    # Tests that are for Gloo alone, by its name, are for this backend, too.
    os.environ.update(BACKEND="gloo", INIT_METHOD=f"file://{folder}/init")
    import torch.distributed as dist
    from torch.testing._internal import common_distributed, common_utils
    from torch.testing._internal.distributed import distributed_test

    import torch_smddp  # noqa: F401

    os.environ["BACKEND"] = "mpi"  # for any other, groups are tested with 8 ranks or more

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    skips = {skip.exit_code for skip in common_distributed.TEST_SKIPS.values()}

    def meet() -> None:
        """Takes the errors that a test has left which failed on another rank."""
        for _ in range(size + 1):
            try:
                return dist.barrier()
            except RuntimeError as error:
                last = error
        raise last

    def outcome_of(name: str) -> str:
        dist.init_process_group(backend, f"file://{place}/store", rank=rank, world_size=size)
        meet()
        test = Suite(name)
        test.rank, test.file_name = rank, str(place / "store")
        try:
            getattr(test, name)()
        except unittest.SkipTest:
            return "skipped"
        except SystemExit as ended:
            return "skipped" if ended.code in skips else "failed"
        except Exception:
            print(f"{name}, rank {rank}:\n{traceback.format_exc()}", flush=True)
            return "failed"
        return "passed"

    def note(name: str, outcome: str) -> None:
        with open(folder / f"rank-{rank}", "a") as report:
            report.write(f"{name} {outcome}\n")

    for name in (folder / "tests").read_text().split():
        if hasattr(getattr(Suite, name), "__unittest_skip__"):
            note(name, "skipped")
            continue
        faulthandler.dump_traceback_later(TEST_LIMIT_S, exit=True)
        place = folder / name
        for part in ("barrier", "test_dir"):
            (place / part).mkdir(parents=True, exist_ok=True)
        os.environ["TEMP_DIR"] = str(place)
        distributed_test.INIT_METHOD = f"file://{place}/init"
        distributed_test.BACKEND = "gloo" if name in ONLY_KNOWN_BACKENDS else backend
        distributed_test.Barrier.barrier_id = 0
        common_utils.set_rng_seed()
        outcome = outcome_of(name)
        if outcome == "failed" and dist.is_initialized():
            dist.distributed_c10d._abort_process_group()  # so that nobody waits for this rank
        distributed_test.Barrier.barrier_id = 1000
        distributed_test.Barrier.sync(size, TEST_LIMIT_S)
        if dist.is_initialized():
            dist.destroy_process_group()
        note(name, outcome)
    faulthandler.cancel_dump_traceback_later()


def known(ranks: int) -> Dict[str, str]:
    """Returns the tests that do not pass with so many ranks, and why."""
    return {
        test: group["reason"]
        for group in tomllib.loads(KNOWN.read_text())["known"]
        if ranks in group.get("ranks", [ranks])
        for test in group["tests"]
    }


def compare(ranks: int, tests: Sequence[str] = (), log: Optional[pathlib.Path] = None) -> List[str]:
    """Runs tests, or all, on both backends; prints and returns what is wrong. `log`: a folder."""
    found = {}
    for backend in ("gloo", "smddp"):
        found[backend] = run_tests(backend, ranks, tests, log and log / f"{backend}-{ranks}")
        counts = collections.Counter(found[backend].values())
        print(
            f"{ranks} ranks, {backend}: " + ", ".join(f"{counts[each]} {each}" for each in counts), flush=True
        )
    listed = known(ranks)
    wrong = []
    for test, outcome in found["smddp"].items():
        if outcome != "passed" and found["gloo"].get(test) == "passed" and test not in listed:
            wrong.append(f"{test}, {ranks} ranks: {outcome}, and Gloo passes")
        if outcome == "passed" and test in listed:
            wrong.append(f"{test}, {ranks} ranks: is listed, and passes")
    for each in wrong:
        print(f"  {each}", flush=True)
    return wrong


def main() -> int:
    """Returns 0 if what does not pass is what is known."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--np", type=int, nargs="+", default=[2, 3], help="numbers of ranks")
    parser.add_argument("--tests", nargs="*", default=[], help="their names; all by default")
    parser.add_argument("--log", type=pathlib.Path, help="a folder for what the ranks write")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)  # this is a rank
    arguments = parser.parse_args()
    if arguments.folder:
        run_rank(arguments.folder)
        return 0
    wrong = [each for ranks in arguments.np for each in compare(ranks, arguments.tests, arguments.log)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
