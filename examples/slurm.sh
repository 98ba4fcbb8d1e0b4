#!/bin/bash
# A job of Slurm over several nodes, with a rank on each:
#
#   sbatch -N 2 examples/slurm.sh examples/digits.py --epochs 3
#
# The Python that is active when the job is submitted runs the script, and it needs an MPI of MPICH's family
# (pip install mpich) or, with --mpi=pmix, Open MPI. For ranks on each GPU or each socket of a node, set
# --ntasks-per-node, and divide the node's cores between them by --cpus-per-task.
#SBATCH --job-name=tf_smddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}
# srun gives a step the cores of its job; without this, it might bind each rank to one of them.
exec srun --cpu-bind=none python "$@"
