"""The meaning of horovodrun's options, beside those that have the same name here. Pure.

`options` reads these tables. docs/launcher.md has a table for people.
"""

from __future__ import annotations

from collections.abc import Iterable

# The same under another name.
SAME = {
    "--output-filename": "--output-dir",
    "--timeline-filename": "--timeline",
    "-hostfile": "--hostfile",
    "-cb": "--check",
    "--check-build": "--check",
    "--min-num-proc": "--min-np",
    "--max-num-proc": "--max-np",
    "--reset-limit": "--max-restarts",
}

# Options with a number of seconds that is a variable of tf_smddp's.
SECONDS = {
    "--start-timeout": "SMDDP_BOOTSTRAP_TIMEOUT",
    "--stall-check-warning-time-seconds": "SMDDP_STALL_WARNING",
    "--stall-check-shutdown-time-seconds": "SMDDP_STALL_TIMEOUT",
}
# Options without a value, and the variable that each sets.
SETTINGS = {"--no-stall-check": ("SMDDP_STALL_WARNING", "0")}

LOG_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
}

# They tune what is not here: Horovod's background thread and its controllers. With a value, and without.
IGNORED_WITH_VALUE = (
    *("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--num-nccl-streams"),
    *("--thread-affinity", "--gloo-timeout-seconds", "--autotune-log-file", "--autotune-warmup-samples"),
    *("--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples"),
    "--autotune-gaussian-process-noise",
)
IGNORED = (
    *("--autotune", "--no-autotune", "--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    *("--hierarchical-allgather", "--no-hierarchical-allgather", "--torus-allreduce"),
    *("--no-torus-allreduce", "--timeline-mark-cycles", "--no-timeline-mark-cycles", "--stall-check"),
    *("--mpi-threads-disable", "--no-mpi-threads-disable", "--disable-cache", "--gloo", "--mpi"),
    *("--log-with-timestamp", "--log-without-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp"),
)

_BY_MPIRUN = "start the job with MPI's own launcher and its options, as in 'mpirun -np 4 ... python train.py'"
_TIMES = "pipe the output through a program that writes the time, as in 'smddprun ... 2>&1 | ts'"
# Options that it would be wrong to ignore, with the remedy.
REFUSED = {
    "--blacklist-cooldown-range": "leave it out; each start takes all hosts that answer",
    "--mpi-args": _BY_MPIRUN,
    "--binding-args": _BY_MPIRUN,
    "--jsrun": "leave it out; smddprun starts the ranks itself, and on several hosts through mpirun",
    "--tcp": "choose MPI's transport by its own variables, as in 'OMPI_MCA_btl=self,vader,tcp smddprun ...'",
    "--config-file": "give its settings as options",
    "-prefix-timestamp": _TIMES,
    "--prefix-output-with-timestamp": _TIMES,
}


def note(ignored: Iterable[str]) -> str:
    """Returns the line that names the options without effect."""
    return (
        f"without effect here: {', '.join(dict.fromkeys(ignored))}; docs/launcher.md says what becomes of "
        "horovodrun's options"
    )
