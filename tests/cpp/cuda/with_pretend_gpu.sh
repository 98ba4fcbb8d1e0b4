#!/bin/bash
# Runs a program that opens CUDA's driver, with the pretend GPU in its place:
# with_pretend_gpu.sh MAKE_FOLDER LIBRARY PROGRAM [ARGUMENT]...
set -eu
"$1" "$2" "$TEST_TMPDIR/cuda"
export LD_LIBRARY_PATH=$TEST_TMPDIR/cuda
# Nothing depends on the machine's speed: a lazy stream waits until somebody waits for it.
export PRETEND_GPU_LAZY_US=3600000000
shift 2
exec "$@"
