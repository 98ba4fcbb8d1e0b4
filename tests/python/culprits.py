"""Jobs in which one rank fails, in one way after the other, and which rank smddprun then names.

    python tests/python/culprits.py --rounds 7 --load 2

runs each kind that often, with 2, 3 and 4 ranks in turn, beside `load` processes that keep a core busy. The
exit code is 1 if a job named another rank than the one with the cause, or returned another exit code than
that rank's. test_culprits.py runs some of them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from typing import Dict, List, Optional, Tuple

from harness import run_job

# The statement that fails on one rank, and its exit code. The empty ones fail elsewhere, below.
KINDS: Dict[str, Tuple[str, int]] = {
    "exception": ("raise ValueError('mine')", 1),
    "between_barriers": ("raise KeyError('mine')", 1),
    "keras_callback": ("raise KeyError('mine')", 1),
    "wrapped": ("raise OSError('mine') from ValueError('first')", 1),
    "memory": ("np.empty(1 << 60)", 1),
    "sys_exit": ("print('no licence'); sys.exit(3)", 3),
    "os_exit": ("os._exit(5)", 5),
    "sigkill": ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    "sigsegv": ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
    "abort": ("os.abort()", 134),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT)", 130),
    "step": ("", 1),
    "data": ("", 1),
    "exhausted": ("", 1),
    "before_init": ("", 4),
    "in_init": ("", 1),
}
# Whose failure is that of another rank, or of all alike: any rank may be named. `ends_early` leaves with 0.
ALIKE = {"ends_early": ("sys.exit(0)", 1), "disagreement": ("", 1)}

SCRIPT = """
import signal
import numpy as np
kind, what, culprit = sys.argv[1], sys.argv[2], int(sys.argv[3])
mine = int(os.environ["SMDDP_RANK"]) == culprit
if mine and kind == "before_init":
    sys.exit(4)
if mine and kind == "in_init":
    os.environ["SMDDP_TABLE_SLOTS"] = "none"
sdp.init()
x = tf.ones([3])

def batches():
    for i in range(10):
        if mine and i == 5 and kind == "data":
            raise KeyError("mine")
        yield i + 0.0

@tf.function
def step(x):
    if mine and kind == "step":
        tf.debugging.assert_less(x, 4.5)
    if mine and kind == "exhausted":
        x += tf.reduce_sum(tf.random.uniform([tf.where(x > 4.5, tf.constant(1 << 50, tf.int64), 1)]))
    return sdp.allreduce(x, 0, 1)

class Callback(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if mine and batch == 3:
            exec(what)

if kind == "keras_callback":
    model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1)])
    model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
    model.fit(np.ones([64, 3]), np.ones([64, 1]), batch_size=8, epochs=9, verbose=0, callbacks=[Callback()])
elif kind == "between_barriers":
    sdp.barrier()
    if mine:
        exec(what)
    sdp.barrier()
elif kind in ("step", "data", "exhausted"):
    for batch in tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([], tf.float32)):
        step(batch)
else:
    for i in range(10):
        if mine and i == 5:
            exec(what)
        sdp.allreduce(x[: 1 + mine] if kind == "disagreement" else x, 0, 1)
"""


def run(kind: str, ranks: int, culprit: int) -> Tuple[Optional[str], str]:
    """Runs a job. Returns what is wrong with its end, if anything is, and its output."""
    what, code = {**KINDS, **ALIKE}[kind]
    # On a busy machine a rank may take longer than 5 s for its traceback.
    job = run_job(ranks, SCRIPT, kind, what, str(culprit), options=["--grace", "60"])
    named = re.findall(r"^smddprun: rank (\d+) failed first", job.output, re.MULTILINE)
    wrong = None
    if len(named) != 1 or (kind in KINDS and int(named[0]) != culprit):
        wrong = f"rank {named} was named"
    elif job.exit_code != code:
        wrong = f"the exit code is {job.exit_code}, not {code}"
    return wrong, job.output


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS, *ALIKE])
    options = parser.parse_args()
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
    failures: List[str] = []
    count = 0
    try:
        for turn in range(options.rounds):
            for number, kind in enumerate(options.kinds):
                ranks = 2 + (turn + number) % 3
                culprit = (turn + number // 3) % ranks
                begin = time.monotonic()
                wrong, output = run(kind, ranks, culprit)
                count += 1
                seconds, lines = time.monotonic() - begin, output.count("\n")
                found = f"{kind}, rank {culprit} of {ranks}, {lines} lines, {seconds:.0f} s: {wrong or 'ok'}"
                print(found, flush=True)
                if wrong:
                    failures.append(found)
                    print(output, flush=True)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    print(f"{count} jobs, {len(failures)} wrong", *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
