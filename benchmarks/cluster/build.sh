#!/bin/bash
# Compiles the model of a cluster into a folder: build.sh FOLDER
# With SimGrid (smpicxx) the programs are FOLDER/cluster_model and FOLDER/calibrate. With MPICXX=mpicxx it is for a real MPI, which
# calibrate.py needs. The sources of kernels/ are those that ship.
set -eu
out=$(realpath -m "$1")
cd "$(dirname "$0")/../.."
compiler=${MPICXX:-smpicxx}
flags=(-std=c++17 -O2 -DNDEBUG -I. -ffp-contract=off)
case $compiler in *smpicxx) flags+=(-DTF_SMDDP_SIMULATED) ;; esac
sources=(
  benchmarks/cluster/{cluster_model,exchanges,port}.cc
  kernels/collectives/backends/wire/{hierarchical_transfer,piece_plan}.cc
  kernels/collectives/host_reduction.cc
  kernels/reduce/*.cc
  kernels/common/types.cc
)
mkdir -p "$out"
objects=()
for source in "${sources[@]}"; do
  object=$out/$(basename "$source" .cc).o
  objects+=("$object")
  # Kernels do not change while the model is worked on.
  if [[ $source == kernels/* && $object -nt $source ]]; then continue; fi
  "$compiler" "${flags[@]}" -c "$source" -o "$object"
done
"$compiler" "${objects[@]}" -o "$out/cluster_model"
"$compiler" "${flags[@]}" benchmarks/cluster/calibrate.cc -o "$out/calibrate"
