#!/bin/bash
# Runs a program that opens CUDA's driver, with the pretend GPU in its place:
# with_pretend_gpu.sh [--nccl NCCL] MAKE_FOLDER LIBRARY PROGRAM [ARGUMENT]...
# With NCCL, there are a pretend NCCL and four devices, too, unless PRETEND_GPU_DEVICES says how many.
set -eu
nccl=()
if [ "$1" = --nccl ]; then
  nccl=("$2")
  export PRETEND_GPU_DEVICES=${PRETEND_GPU_DEVICES:-4} PRETEND_GPU_MEMORY_MB=${PRETEND_GPU_MEMORY_MB:-256}
  # A call that hangs, or a communicator that is left at the end, is an error.
  export PRETEND_GPU_NCCL_LIMIT_S=50 PRETEND_GPU_NCCL_LEAKS=1
  shift 2
fi
"$1" "$2" "$TEST_TMPDIR/cuda" "${nccl[@]}"
export LD_LIBRARY_PATH=$TEST_TMPDIR/cuda
# Nothing depends on the machine's speed: a lazy stream waits until somebody waits for it.
export PRETEND_GPU_LAZY_US=3600000000
shift 2
exec "$@"
