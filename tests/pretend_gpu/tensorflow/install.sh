#!/bin/sh
# install.sh ENVIRONMENT: builds the pretend GPU and NCCL, NCCL with faults, and the twins of TensorFlow's kernels, for the
# TensorFlow of a virtual environment (.venv/gpu-2.15.1), and puts them into its folder pretend_gpu, with the
# names of CUDA's libraries.
set -eu
environment=$(cd "$1" && pwd)
cd "$(dirname "$0")/../../.."
folder=$environment/pretend_gpu

bazel() {
  command=$1
  shift
  "$environment/bin/python" tools/run_bazel.py "$command" \
    "--repo_env=PYTHON_BIN_PATH=$environment/bin/python" "--repo_env=TF_SMDDP_TF=$environment" "$@"
}
bazel build //tests/pretend_gpu:libpretend_gpu.so //tests/pretend_gpu/nccl:libnccl.so.2 \
  //tests/faulty_nccl:libnccl_faulty.so \
  //tests/pretend_gpu/tensorflow:libtensorflow_twins.so
tests=$(bazel info bazel-bin)/tests
built=$tests/pretend_gpu

rm -rf "$folder"
mkdir -p "$folder/files"
cp "$built/libpretend_gpu.so" "$built/nccl/libnccl.so.2" "$folder/files"
cp "$built/tensorflow/libtensorflow_twins.so" "$tests/faulty_nccl/libnccl_faulty.so" "$folder"
cp tests/pretend_gpu/tensorflow/ptxas "$folder"
tests/pretend_gpu/make_folder.sh "$folder/files/libpretend_gpu.so" "$folder" "$folder/files/libnccl.so.2"
