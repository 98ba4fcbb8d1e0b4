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

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
export TF_NUM_INTRAOP_THREADS=$OMP_NUM_THREADS
# srun does not take the number of cores from the job, and might bind each rank to one of them.
exec srun --cpus-per-task="$OMP_NUM_THREADS" --cpu-bind=none python "$@"
