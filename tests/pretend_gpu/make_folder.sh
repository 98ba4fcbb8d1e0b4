#!/bin/sh
# make_folder.sh LIBRARY FOLDER [NCCL]: gives the stand-in the names of CUDA's libraries, for LD_LIBRARY_PATH.
# Without NCCL, the folder has no libnccl.so.2, as on a machine where it is not installed.
# The names are links to one file, so that the dynamic linker loads it once.
set -eu
library=$(readlink -f "$1")
mkdir -p "$2"
for name in cuda.so.1 cudart.so.12 cublas.so.12 cublasLt.so.12 cufft.so.11 cusolver.so.11 cusparse.so.12 \
  cudnn.so.8 cudnn.so.9 nvJitLink.so.12 nvrtc.so.12 nvidia-ml.so.1; do
  ln -sf "$library" "$2/lib$name"
done
rm -f "$2/libnccl.so.2"
if [ $# -gt 2 ]; then
  ln -sf "$library" "$2/libpretend_gpu.so"
  ln -sf "$(readlink -f "$3")" "$2/libnccl.so.2"
fi
