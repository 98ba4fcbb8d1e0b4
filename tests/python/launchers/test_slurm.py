"""Ranks that Slurm's srun starts, in a cluster of one node."""

import sys

import pytest
from foreign_jobs import check_digits, check_who, digits


@pytest.mark.long
def test_two_jobs_of_the_example_at_once(bench, slurm):
    jobs = [bench.start("srun", "-n", "2", *digits("--seed", seed), **slurm) for seed in (1, 2)]
    for job in jobs:
        check_digits(job.finish())


@pytest.mark.long
def test_a_batch_script_is_one_process_and_two_steps_of_it_at_once_are_two_jobs(bench, slurm):
    who = f"{sys.executable} {bench.who}"
    script = bench.folder / "batch.sh"
    script.write_text(
        f"""#!/bin/bash
{who} shell || exit 1
srun -n 2 --overlap {who} one & first=$!
srun -n 2 --overlap bash -c '{who} other; exit $?' & second=$!
wait $first && wait $second
"""
    )
    log = bench.folder / "batch.log"
    ended = bench.run("sbatch", "--wait", "-n", "4", "-o", log, script, **slurm)
    ended = ended._replace(output=ended.output + log.read_text())
    check_who(ended, "shell", 1)
    check_who(ended, "one")
    check_who(ended, "other")


def test_a_batch_script_that_a_step_submitted_is_one_process(bench, slurm):
    script = bench.folder / "batch.sh"
    script.write_text(f"#!/bin/bash\nexec {sys.executable} {bench.who} inner\n")
    log = bench.folder / "batch.log"
    submit = f'[ "$SLURM_PROCID" != 0 ] || sbatch --wait -n 1 -o {log} {script}'
    ended = bench.run("srun", "-n", "2", "bash", "-c", submit, **slurm)
    check_who(ended._replace(output=ended.output + log.read_text()), "inner", 1)


def test_variables_of_torchrun_that_a_script_has_set_from_slurms(bench, slurm):
    script = (
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=2 LOCAL_WORLD_SIZE=2; "
        f"{sys.executable} {bench.who} copied; exit $?"
    )
    check_who(bench.run("srun", "-n", "2", "bash", "-c", script, **slurm), "copied")
