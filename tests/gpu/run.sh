#!/bin/bash
# Runs the tests of kernels/cuda on a machine's first GPU, and measures what we do there: run.sh [PROGRAMS].
#
# PROGRAMS: a folder with gpu_tests and libno_pretend_gpu.so. Without it, Bazel builds them. To make such a folder for a
# machine without Bazel: run.sh --programs FOLDER.
#
# Needs the driver's libcuda.so.1, and NCCL: libnccl.so.2 of the system, or of the package that a `python3` has.
# Neither TensorFlow nor nvcc. It takes a minute, and exits with 1 if a test fails.
set -euo pipefail

build() {
  cd "$(dirname "$(readlink -f "$0")")/../.."
  python3 tools/run_bazel.py build //tests/gpu:gpu_tests //tests/gpu:libno_pretend_gpu.so >&2
  programs=$PWD/bazel-bin/tests/gpu
}

programs=${1:-}
if [ "$programs" = --programs ]; then
  folder=$(readlink -f "${2:?usage: run.sh --programs FOLDER}")
  build
  mkdir -p "$folder"
  cp -fL "$programs/gpu_tests" "$programs/libno_pretend_gpu.so" "$folder"
  echo "In $folder are the programs for: tests/gpu/run.sh $folder"
  exit
fi
[ -n "$programs" ] || build

# The names of the driver and of NCCL, where the dynamic linker would find them.
find_library() {
  local folder
  for folder in ${LD_LIBRARY_PATH//:/ } /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu \
    /usr/lib64 $(python3 -c 'import nvidia; print(*(f"{p}/nccl/lib" for p in nvidia.__path__))' 2>/dev/null); do
    if [ -e "$folder/$1" ]; then
      echo "$folder/$1"
      return
    fi
  done
  echo "run.sh: $1 was not found; name its folder in LD_LIBRARY_PATH" >&2
  exit 1
}
driver=$(find_library libcuda.so.1)
nccl=$(find_library libnccl.so.2)
echo "driver: $driver; NCCL: $nccl; $(date -u +'%F %H:%M UTC')"

# The tests link the pretend GPU. Here the driver itself takes its place.
stand_in=$(mktemp -d)
trap 'rm -rf "$stand_in"' EXIT
cp -L "$programs/libno_pretend_gpu.so" "$stand_in/libpretend_gpu.so"
export LD_LIBRARY_PATH="$stand_in:$(dirname "$nccl")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# Left out is what a GPU cannot show: how many kernels were launched, and what happens if a wait is missing.
LD_PRELOAD=$driver "$programs/gpu_tests" \
  --gtest_filter='-*CountsLaunches*:CudaDevice.AnInputThatIsNotWaitedForIsReadTooEarly' --gtest_brief=1
