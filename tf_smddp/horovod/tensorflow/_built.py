"""Horovod's questions about its build: the answer is what tf_smddp finds at run time."""

from __future__ import annotations

from tf_smddp import local_size, size
from tf_smddp._base import op_library


def mpi_built() -> bool:
    """Whether MPI can join hosts: always, since it is looked for at run time."""
    return True


def mpi_enabled() -> bool:
    """Whether MPI joins the hosts of this job."""
    return size() > local_size()


def mpi_threads_supported() -> bool:
    """Whether the script may call MPI, too, as with mpi4py."""
    return True


def nccl_built() -> int:
    """1 if there are kernels for NVIDIA's GPUs, which look for NCCL at run time, else 0."""
    return int(cuda_built())


def gloo_built() -> bool:
    """False: there is no Gloo, and none is needed."""
    return False


def gloo_enabled() -> bool:
    """False, likewise."""
    return False


def cuda_built() -> bool:
    """Whether there are kernels for NVIDIA's GPUs."""
    return bool(op_library.load()[1].tf_smddp_has_gpu_kernels())


def ccl_built() -> bool:
    """False: there is no oneCCL."""
    return False


def ddl_built() -> bool:
    """False: there is no DDL."""
    return False


def rocm_built() -> bool:
    """False: there are no kernels for AMD's GPUs."""
    return False
