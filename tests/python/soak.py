"""Trains for a long time while ranks fail at random, and checks that nothing but time is lost.

    python tests/python/soak.py --minutes 120 --log soak.log

Each job trains with `smddprun --max-restarts` and `sdp.Checkpoint`. Each start of it draws a fault from the
job's seed: one rank is killed (SIGKILL), exits, raises an exception, or runs out of memory (RLIMIT_AS); often
another one is stopped for a while first (SIGSTOP, then SIGCONT). Every job must end in time with the weights
of a job that nothing disturbed, with one restart for each fatal fault, and without a process, file or socket
left behind. The launcher's memory and descriptors must not grow from start to start, nor those of a rank from
step to step.

The exit code is 1 if a job failed one of these checks; the log names its seed, and `--seed` repeats it.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import random
import sys
import tempfile
import time
from typing import Any, Counter, Dict, List, Tuple

from harness import Job, RunningJob

FATAL = ("kill", "exit", "exception", "memory")
FAULTS = (*FATAL, "stop")
RANKS = 4
STEPS = 300
# A start takes a few seconds alone, and many on a machine that is busy with other work.
SECONDS_PER_START = 90.0
# Python and TensorFlow may take so much more at the end of a job than at its begin, without a leak.
RANK_GROWTH_BYTES = 64 << 20
LAUNCHER_GROWTH_BYTES = 8 << 20

# The data of a step follow from its number and each rank's own generator, which is part of the checkpoint.
SCRIPT = f"""
import random, resource, signal, subprocess, threading
import numpy as np
folder, seed, faults = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start = int(os.environ["SMDDP_RESTART_COUNT"])
rank = int(os.environ["SMDDP_RANK"])
choice = random.Random(f"{{seed}} {{start}}")
kind, victim, delay = choice.choice({FATAL!r}), choice.randrange({RANKS}), choice.uniform(0.0, 3.0)
stops, stopped, stop_delay = choice.random() < 0.5, choice.randrange({RANKS}), choice.uniform(0.0, 2.0)
pause = choice.uniform(0.05, 1.5)
disturbed = start < faults
begin = time.monotonic()

def note(text):
    with open(f"{{folder}}.faults", "a") as file:
        file.write(text + "\\n")

def stop():
    subprocess.Popen(["sh", "-c", f"sleep {{pause}}; kill -CONT {{os.getpid()}}"])
    note("stop")
    os.kill(os.getpid(), signal.SIGSTOP)

def end():
    note(kind)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)

def fail_here():
    note(kind)
    if kind == "exception":
        raise RuntimeError("an exception that the soak test raises")
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
    np.ones([1 << 30])  # MemoryError

def is_due():
    due = time.monotonic() - begin > delay
    return disturbed and rank == victim and kind in ("exception", "memory") and due

if disturbed and stops and rank == stopped:
    threading.Timer(stop_delay, stop).start()
if disturbed and rank == victim and kind in ("kill", "exit"):
    threading.Timer(delay, end).start()
sdp.init()
weight, speed = tf.Variable(tf.ones([1000])), tf.Variable(tf.zeros([1000]))
noise = tf.random.Generator.from_seed(sdp.rank())
checkpoint = sdp.Checkpoint(folder, weight=weight, speed=speed, per_rank={{"noise": noise}}, max_to_keep=2)

@tf.function
def step(number):
    with tf.GradientTape() as tape:
        x = noise.normal([1000]) + number
        loss = tf.reduce_mean((weight * x - 1.0) ** 2)
    gradient = sdp.DistributedGradientTape(tape).gradient(loss, weight)
    speed.assign(0.9 * speed + 1e-6 * gradient)
    weight.assign_sub(speed)

def usage():
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return resident, len(os.listdir("/proc/self/fd"))

first = checkpoint.restore() or 0
for number in range(first, {STEPS}):
    if is_due():
        fail_here()
    step(tf.constant(float(number)))
    if number % 3 == 0 or number + 1 == {STEPS}:
        checkpoint.save(number + 1)
    if number == first + 20:
        early = usage()
while disturbed:  # the training has ended before the fault
    if is_due():
        fail_here()
    sdp.allreduce(tf.ones([3]), 0, 1)
    time.sleep(0.01)
if {STEPS} - first > 40:
    report("early", early)
    report("late", usage())
report("weight", weight.numpy().tobytes().hex())
report("start", start)
"""


class Launcher(RunningJob):
    """A job whose launcher's memory and descriptors are looked at while it runs."""

    def usage(self) -> Tuple[int, int]:
        """The launcher's resident bytes and descriptors; zeros when it has ended."""
        proc = pathlib.Path(f"/proc/{self._process.pid}")
        try:
            resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            return resident, len(os.listdir(proc / "fd"))
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return 0, 0

    def ended(self) -> bool:
        return self._process.poll() is not None


def train(folder: pathlib.Path, seed: int, faults: int) -> Tuple[Job, List[Tuple[int, int]]]:
    """Runs one job; returns how it ended, and the launcher's usage about every second."""
    samples = []
    options = ["--max-restarts", str(faults + 1), "--grace", "2"]
    with Launcher(RANKS, SCRIPT, str(folder), str(seed), str(faults), options=options) as running:
        deadline = time.monotonic() + SECONDS_PER_START * (faults + 1)
        while not running.ended() and time.monotonic() < deadline:
            samples.append(running.usage())
            time.sleep(1.0)
        job = running.finish(5.0)
    return job, [each for each in samples if each[0] > 0]


def problems_of(job: Job, samples: List[Tuple[int, int]], faults: int, fatal: int, weight: str) -> List[str]:
    """The problems of a job that has ended."""
    found = [f"left behind: {each}" for each in job.leftovers]
    if job.exit_code != 0:
        found.append(f"exit code {job.exit_code}")
    weights = [report["weight"] for report in job.reports if "weight" in report]
    if len(weights) != RANKS or set(weights) != {weight or weights[0]}:
        found.append("the weights differ from those of the undisturbed job")
    restarts = job.output.count("the job has failed, exit code ")
    if restarts != faults or fatal != faults:
        found.append(f"{restarts} restarts and {fatal} fatal faults, where {faults} were to be")
    for rank, report in enumerate(job.reports):
        if "early" not in report:
            continue
        grown, descriptors = (late - early for early, late in zip(report["early"], report["late"]))
        if grown > RANK_GROWTH_BYTES or descriptors > 0:
            found.append(f"rank {rank} has grown by {grown} bytes and {descriptors} descriptors")
    # The first second belongs to Python's start.
    if len(samples) > 4:
        resident = max(each[0] for each in samples[-3:]) - max(each[0] for each in samples[1:4])
        # Between two starts it holds fewer, so the most at the end counts.
        tail = samples[len(samples) // 2 :]
        descriptors = max(each[1] for each in tail) - max(each[1] for each in samples[: len(samples) // 2])
        if resident > LAUNCHER_GROWTH_BYTES or descriptors > 0:
            found.append(f"the launcher has grown by {resident} bytes and {descriptors} descriptors")
    return found


def injected(folder: pathlib.Path) -> List[str]:
    """The faults that a job has suffered."""
    path = pathlib.Path(f"{folder}.faults")
    return path.read_text().split() if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0, help="no new job is started after these")
    parser.add_argument("--faults", type=int, default=10, help="fatal faults in each job (default: 10)")
    parser.add_argument("--seed", type=int, default=None, help="of the first job; the next ones count on")
    parser.add_argument("--log", type=pathlib.Path, default=None, help="a file for the lines, too")
    options = parser.parse_args()

    def say(text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {text}"
        print(line, flush=True)
        if options.log is not None:
            with options.log.open("a") as file:
                file.write(line + "\n")

    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    counts: Counter[str] = collections.Counter()
    jobs = failed = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        undisturbed, samples = train(pathlib.Path(name, "undisturbed"), seed, 0)
        wrong = problems_of(undisturbed, samples, 0, 0, "")
        if wrong:
            say(f"the undisturbed job fails: {'; '.join(wrong)}\n{undisturbed}")
            return 1
        weight = undisturbed.reports[0]["weight"]
        say(f"{RANKS} ranks, {STEPS} steps; undisturbed, a job takes {time.monotonic() - begin:.0f} s")
        while time.monotonic() - begin < options.minutes * 60:
            folder = pathlib.Path(name, f"job-{jobs}")
            started = time.monotonic()
            details: Dict[str, Any] = {}
            try:
                job, samples = train(folder, seed, options.faults)
                faults = injected(folder)
                fatal = sum(fault in FATAL for fault in faults)
                wrong = problems_of(job, samples, options.faults, fatal, weight)
                details["output"] = job.output
            except AssertionError as error:  # it hangs; the harness has ended it
                faults, wrong = injected(folder), [str(error)]
            counts.update(faults)
            jobs += 1
            failed += bool(wrong)
            say(
                f"job {jobs}, seed {seed}: {len(faults)} faults in {time.monotonic() - started:.0f} s, "
                f"launcher {samples[-1][0] >> 20} MiB and at most {max(s[1] for s in samples)} descriptors: "
                + ("; ".join(wrong) + "\n" + details.get("output", "") if wrong else "as undisturbed")
            )
            seed += 1
    total = ", ".join(f"{counts[kind]} x {kind}" for kind in FAULTS)
    say(
        f"{jobs} jobs, {sum(counts.values())} faults ({total}) in {(time.monotonic() - begin) / 60:.0f} min; "
        f"{failed} jobs failed"
    )
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
