#!/bin/bash
# Shows what a machine with one GPU can show, in order of value, in nine minutes at most, and prints one table. Ranks
# that share the GPU use NCCL as if each had one of its own (SMDDP_TEST_OWN_GPU). README.md says how to use it.
#
#   lease.sh pack FOLDER [ARCH [VERSION...]]   here: gathers programs and versions of NCCL, as FOLDER/part-*
#   lease.sh run FOLDER [STEPS]                there: FOLDER has the parts, or what is in them; STEPS is a regular
#                                              expression for the names of the steps that are to run
#
# It needs the driver's libcuda.so.1, bash and Python; neither a network, nor nvcc, nor Bazel. The front ends need
# PyTorch there, and CUDA's libraries for TensorFlow, which may be of CUDA 13.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")

# The TensorFlow that is brought along, and the Python there.
tensorflow=2.21.0
python=3.12

# A part, and a working tree beside it, must fit into a transport of 64 MiB.
part_bytes=40M

pack() {
  local folder=$1 arch=${2:-90} version work
  local -a versions=("${@:3}")
  [ ${#versions[@]} -gt 0 ] || versions=(2.32.3 2.28.9 2.21.5 2.18.3 2.16.5)
  work=$(mktemp -d)
  trap "rm -rf '$work'" EXIT
  set -e
  mkdir -p "$folder" "$work/all"
  folder=$(readlink -f "$folder")
  rm -f "$folder"/part-*
  cd "$here/../.."
  python3 tools/run_bazel.py build //tests/gpu:gpu_tests //tests/gpu:libno_pretend_gpu.so //tests/cpp/cuda:nccl_tests \
    //tests/faulty_nccl:libnccl_faulty.so
  strip -o "$work/all/gpu_tests" bazel-bin/tests/gpu/gpu_tests
  strip -o "$work/all/nccl_tests" bazel-bin/tests/cpp/cuda/nccl_tests
  cp -L bazel-bin/tests/gpu/libno_pretend_gpu.so bazel-bin/tests/faulty_nccl/libnccl_faulty.so "$work/all"
  for version in "${versions[@]}"; do
    python3 -m pip install -q --no-deps --target "$work/wheel" "nvidia-nccl-cu12==$version"
    mkdir "$work/all/nccl-$version"
    python3 "$here/keep_one_arch.py" "$arch" "$work/wheel/nvidia/nccl/lib/libnccl.so.2" \
      "$work/all/nccl-$version/libnccl.so.2"
    rm -r "$work/wheel"
  done
  mkdir "$work/all/python" "$work/all/tensorflow"
  pack_front_ends "$work/all" "$arch"
  # In order of value: whatever is not brought along is at the end.
  (cd "$work/all" && tar -c gpu_tests nccl_tests libno_pretend_gpu.so libnccl_faulty.so python "nccl-${versions[0]}" \
    tensorflow "${versions[@]/#/nccl-}") | xz -T0 -3 | split -b "$part_bytes" - "$folder/part-"
  ls -l "$folder"
}

# The Python packages, as python/, and TensorFlow with what it needs, as tensorflow/.
pack_front_ends() { # TARGET ARCH
  local wheel library=$1/tensorflow/tensorflow/libtensorflow_cc.so.2
  if ! wheel=$(ls "dist/tf-$tensorflow"/*.whl 2>/dev/null); then
    echo "lease.sh: without the front ends; \`make wheel TF=$tensorflow\` builds their wheel" >&2
    return
  fi
  local install=(python3 -m pip install -q --no-compile --only-binary=:all: --python-version "$python" --target)
  "${install[@]}" "$1/python" --no-deps "$wheel" cloudpickle psutil
  "${install[@]}" "$1/tensorflow" "tensorflow==$tensorflow"
  rm -r "$1/tensorflow/tensorflow/include" "$1/tensorflow/clang"
  python3 "$here/keep_one_arch.py" "$2" "$library" "$library.new"
  mv "$library.new" "$library"
}

# ---- there ----

begin=$SECONDS
total_s=${LEASE_SECONDS:-540}
rows=()
failed=0

# Runs a command for `limit` seconds at most, and adds a row to the table. The figure is the command's last line that
# begins with "figure: ", else how many tests passed.
step() { # NAME LIMIT COMMAND...
  local name=$1 limit=$2 left=$((total_s - SECONDS + begin)) from=$SECONDS code result figure
  [[ $name =~ $wanted ]] || return
  shift 2
  local log=$out/${name//[^a-zA-Z0-9.]/_}.log
  if [ "$left" -lt 5 ]; then
    rows+=("| $name | not reached | | |")
    return
  fi
  timeout -k 5 "$((limit < left ? limit : left))" bash -c '"$@"' - "$@" >"$log" 2>&1
  code=$?
  case $code in
    0) result=right ;;
    124 | 137) result="**late**" failed=1 ;;
    *) result="**wrong** (exit code $code)" failed=1 ;;
  esac
  figure=$(sed -n 's/^.*figure: //p' "$log" | tail -1)
  [ -n "$figure" ] || figure=$(sed -n 's/^\[  PASSED  \] \([0-9]* test\).*/\1s/p' "$log" | tail -1)
  if [ "$code" != 0 ] && [ -z "$figure" ]; then
    figure=$(grep -aE 'FAILED|rror' "$log" | tail -1 | tr '|' '/' | cut -c1-150)
  fi
  rows+=("| $name | $result | $((SECONDS - from)) | $figure |")
  echo "${rows[-1]}"
  [ "$result" = right ] || tail -n 40 "$log" | cut -c1-300 | sed 's/^/    /'
}

left_out() { rows+=("| $1 | left out | | $2 |"); } # NAME WHY

# The first file of this name: of the folder, the dynamic linker's, the driver's, or a Python package's.
find_file() {
  local found place
  found=$(find -L "$folder" -maxdepth 3 -name "$1" -print -quit)
  [ -z "$found" ] || { echo "$found" && return; }
  for place in ${LD_LIBRARY_PATH//:/ } /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu \
    /usr/lib64 $(python3 -c 'import nvidia; print(*(f"{p}/nccl/lib" for p in nvidia.__path__))' 2>/dev/null); do
    [ ! -e "$place/$1" ] || { echo "$place/$1" && return; }
  done
}

# Runs a program of C++ tests, which link the pretend GPU: the driver and NCCL take its place. Left out is what a GPU
# cannot show: how many kernels were launched, and what happens if a wait is missing.
tests() { # PROGRAM FILTER [OPTION OF env]...
  local program=$1 filter=$2
  shift 2
  env "$@" LD_PRELOAD="$driver" LD_LIBRARY_PATH="$stand_in:$(dirname "$nccl")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    "$program" --gtest_brief=1 --gtest_filter="$filter-*CountsLaunches*:*PacksSmallTensors*:*TooEarly*:*TooSoon*"
}

export -f tests
export driver nccl stand_in

cpp_steps() {
  local gpu=$(find_file gpu_tests) ranks=$(find_file nccl_tests) version
  if [ -z "$gpu" ] || [ -z "$ranks" ]; then
    left_out "the engine in C++" "its programs are not in $folder"
    return
  fi
  stand_in=$out/stand_in
  mkdir "$stand_in"
  cp -L "$(find_file libno_pretend_gpu.so)" "$stand_in/libpretend_gpu.so"
  # Each policy of the pretend GPU is the same on a real one, so the first is enough.
  local engine='OwnDevices/*/0:Policies/NcclEngineTest.*/0:NcclEngine.Compresses*:NcclEngine.IsDeterministic*'
  step "device code, ranks without NCCL" 60 tests "$gpu" 'CopierTest.*:*CudaDevice*' -u SMDDP_TEST_OWN_GPU
  step "NCCL, one rank" 60 tests "$gpu" 'OneRank.*'
  step "NCCL, communicators of two ranks" 40 tests "$ranks" 'NcclCommunicator.Is*:NcclAbort.*'
  step "NCCL, each collective" 60 tests "$ranks" '*NcclCollectiveTest.*/0:*NcclCollectiveTest.*/5:NcclOrder.With*'
  step "engine, two to four ranks" 90 tests "$ranks" "$engine"
  step "process sets" 40 tests "$ranks" 'Policies/NcclSetsTest.*/0'
  step "an abort of the job" 30 tests "$ranks" 'NcclAbortOfTheJob.EachRank*'
  step "a rank is killed, or aborts" 40 tests "$ranks" 'Policies/GpuDeathTest.*/0:*/GpuDeathTest.*/0'
  for transport in NCCL_CUMEM_ENABLE=0 NCCL_P2P_DISABLE=1 "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1" \
    CUDA_LAUNCH_BLOCKING=1 NCCL_RUNTIME_CONNECT=0; do
    step "engine, $transport" 40 tests "$ranks" 'OwnDevices/GpuEngineTest.Sums*/0' $transport
  done
  for nccl in $(find -L "$folder" -path '*/nccl-*/libnccl.so.2' | sort -V); do
    version=$(basename "$(dirname "$nccl")")
    step "one rank, $version" 20 tests "$gpu" 'OneRank.*'
  done
  nccl=$newest
}

measure_step() {
  local gpu=$(find_file gpu_tests)
  [ -z "$gpu" ] || step "times" 60 tests "$gpu" 'Measure.*' -u SMDDP_TEST_OWN_GPU
}

# The steps of a front end: two processes that train and die. lease_NAME.py has them.
front_end_steps() { # NAME MODULE
  local name=$1 job=$here/lease_$1.py
  if ! python3 -c "import $1, $2, smddprun" >"$out/$name.log" 2>&1; then
    left_out "$name" "python3 cannot import it, or $2: $(tail -1 "$out/$name.log" | tr '|' '/' | cut -c1-100)"
    return
  fi
  local run=(python3 -m smddprun -np 2 python3 "$job")
  step "$name: training" 60 "${run[@]}" train
  step "$name: the same bits twice" 120 bash -c '
    set -o pipefail; export SMDDP_DETERMINISTIC=1
    first=$("$@" train | sed -n "s/.*weights: //p" | sort -u) && second=$("$@" train | sed -n "s/.*weights: //p" | sort -u)
    echo "figure: $first"; [ "$(wc -w <<<"$first")" = 1 ] && [ "$first" = "$second" ]' - "${run[@]}"
  local end
  for end in kill stop throw; do
    step "$name: $end a rank" 40 bash -c '"$@" 2>&1 | tee /dev/stderr | grep "figure: in time"' - "${run[@]}" "$end"
  done
  "${name}_steps" "${run[@]}"
  local fault faulty=$(find_file libnccl_faulty.so)
  for fault in ${faulty:+init_fails:1 kernel_hangs:0 wrong_sums:1}; do
    step "$name: NCCL with $fault" 60 env SMDDP_NCCL_LIBRARY="$faulty" FAULTY_NCCL_LIBRARY="$nccl" FAULTY_NCCL="$fault" \
      SMDDP_NCCL_TIMEOUT=10 "${run[@]}" train
  done
}

tensorflow_steps() { # RUN...
  step "tensorflow: little memory" 60 "$@" memory
  step "tensorflow: starts under XLA" 60 "$@" xla
  step "tensorflow: cuda_malloc_async" 60 env TF_GPU_ALLOCATOR=cuda_malloc_async "$@" train
}

torch_steps() { # RUN...
  # torch's own NCCL may be too old for ranks that share a GPU.
  step "torch: beside its NCCL" 90 env LD_PRELOAD="$nccl" "$@" peer
}

# Gives CUDA's libraries the names that TensorFlow looks for. It shows no GPU if one of them is missing.
name_cuda_libraries() {
  local name found place
  local places=(/usr/local/cuda/lib64 $(python3 -c '
import glob, nvidia
print(*(each for place in nvidia.__path__ for each in glob.glob(f"{place}/*/lib")))' 2>/dev/null))
  mkdir "$out/cuda"
  for name in cudart.so.12 cublas.so.12 cublasLt.so.12 cufft.so.11 cusolver.so.11 cusparse.so.12 cudnn.so.9 cupti.so.12; do
    for place in "${places[@]}"; do
      found=$(ls "$place/lib${name%.*}".[0-9]* 2>/dev/null | head -1)
      [ -z "$found" ] || { ln -s "$found" "$out/cuda/lib$name" && break; }
    done
  done
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$out/cuda$(printf ':%s' "${places[@]}")"
}

run() {
  folder=$(readlink -f "$1")
  wanted=${2:-.}
  out=${OUT:-$(mktemp -d)}/lease
  mkdir -p "$out"
  if [ -e "$folder/part-aa" ]; then
    mkdir "$out/all"
    cat "$folder"/part-* | python3 -c '
import os, sys, tarfile
os.chdir(sys.argv[1])
path = None
try:
    parts = tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz")
    for member in parts:
        path = member.name
        parts.extract(member)
except (EOFError, tarfile.ReadError) as error:
    print(f"the parts end within {path}, so that and what is behind it is left out: {error}")
    if os.path.isfile(path):
        os.remove(path)' "$out/all"
    folder=$out/all
  fi
  driver=$(find_file libcuda.so.1)
  newest=$(find -L "$folder" -path '*/nccl-*/libnccl.so.2' | sort -V | tail -1)
  nccl=${newest:=$(find_file libnccl.so.2)}
  if [ -z "$driver" ] || [ -z "$nccl" ]; then
    echo "lease.sh: libcuda.so.1 or libnccl.so.2 was not found; name their folders in LD_LIBRARY_PATH" >&2
    exit 2
  fi
  export SMDDP_TEST_OWN_GPU=1 SMDDP_NCCL_LIBRARY=$nccl
  # NCCL's page promises two ranks a GPU.
  export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=${NCCL_MAX_CTAS:-2} NCCL_NVLS_ENABLE=0 CUDA_DEVICE_MAX_CONNECTIONS=32
  LEASE_GPU_MIB=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2>/dev/null | head -1)
  export LEASE_GPU_MIB=${LEASE_GPU_MIB:-2048}
  export PRETEND_GPU_NCCL_CONCURRENT=1 # where the GPU is not a real one

  cpp_steps
  export PYTHONPATH=$folder/python${PYTHONPATH:+:$PYTHONPATH}
  front_end_steps torch torch_smddp
  measure_step
  name_cuda_libraries
  PYTHONPATH=$PYTHONPATH:$folder/tensorflow front_end_steps tensorflow tf_smddp

  printf '\n%s, %s, %s\n' "$(date -u +'%F %H:%M UTC')" "driver $driver" "NCCL $nccl"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
  printf '| step | result | seconds | figure |\n|---|---|---|---|\n'
  printf '%s\n' "${rows[@]}"
  grep -h '^|\|^[^[].*driver' "$out/times.log" 2>/dev/null
  return $failed
}

case ${1:-} in
  pack | run) "$@" ;;
  *) sed -n '2,10s/^# \?//p' "$0" && exit 2 ;;
esac
