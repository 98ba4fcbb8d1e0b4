#!/bin/bash
# Installs the Debian packages that are missing; does nothing, quickly, when none is.
# As root or with sudo through apt-get; otherwise it prints the command and exits with 1.
# setup_system.sh: what building and tests/model need.
# setup_system.sh launchers: the launchers that tests/python/launchers runs.
# setup_system.sh clang: libFuzzer, for tests/fuzz.
# setup_system.sh cluster: SimGrid, for the model of a cluster (benchmarks/cluster).
set -eu
cd "$(dirname "$0")/.."

required=()
optional=()
PATH=$PATH:/usr/sbin:/sbin # daemons are there, which an ordinary user's PATH may lack
if [ "${1:-}" = launchers ]; then
  command -v mpirun.openmpi >/dev/null || required+=(openmpi-bin)
  command -v srun >/dev/null || required+=(slurm-client)
  command -v slurmctld >/dev/null || required+=(slurmctld)
  command -v slurmd >/dev/null || required+=(slurmd)
  # Slurm opens its libpmix.so for srun --mpi=pmix.
  compgen -G '/usr/lib/*/pmix2/lib/libpmix.so' >/dev/null || required+=(libpmix-dev)
  command -v munged >/dev/null || required+=(munge)
  command -v ip >/dev/null || required+=(iproute2)
  command -v ssh >/dev/null || required+=(openssh-client)
  # PyPI has SageMaker's toolkit as source, with a file in C.
  if python=$(tools/choose_python.sh any 2>/dev/null); then
    header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    [ -e "$header" ] || required+=(python3-dev)
  fi
elif [ "${1:-}" = clang ]; then
  command -v clang++ >/dev/null || required+=(clang)
  # Debian's clang does without its sanitizers' libraries, unless one asks for them.
  compgen -G '/usr/lib/*/clang/*/lib/*/libclang_rt.fuzzer*.a' >/dev/null ||
    compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/*/libclang_rt.fuzzer*.a' >/dev/null || required+=(libclang-rt-14-dev)
elif [ "${1:-}" = cluster ]; then
  command -v smpicxx >/dev/null || required+=(libsimgrid-dev)
  [ -d /usr/include/hwy ] || required+=(libhwy-dev)
else
  command -v gcc >/dev/null && command -v g++ >/dev/null || required+=(g++)
  command -v spin >/dev/null || required+=(spin)
  if python=$(tools/choose_python.sh any 2>/dev/null); then
    "$python" tools/run_bazel.py --find >/dev/null 2>&1 || required+=(bazel-bootstrap)
  else
    required+=(python3 python3-venv)
    command -v bazel >/dev/null || command -v bazelisk >/dev/null || required+=(bazel-bootstrap)
  fi

  # Bazel downloads the sources of these where the packages are missing.
  [ -d /usr/src/googletest/googletest ] || optional+=(libgtest-dev)
  [ -d /usr/include/benchmark ] || optional+=(libbenchmark-dev)
  [ -d /usr/include/hwy ] || optional+=(libhwy-dev)
fi

packages=("${required[@]}" "${optional[@]}")
[ ${#packages[@]} -gt 0 ] || exit 0

root=
if [ "$(id -u)" != 0 ]; then
  root=none
  # Without a terminal, sudo must not ask for a password.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then root=sudo; fi
fi
install="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
if ! command -v apt-get >/dev/null; then
  echo "Missing, by the names of Debian's packages: ${packages[*]}" >&2
elif [ "$root" = none ]; then
  echo "Missing packages, and neither root nor sudo here. Run this as root:" >&2
  echo "    $install" >&2
else
  echo "Installing Debian packages: ${packages[*]}"
  log=$(mktemp)
  if $root apt-get update >"$log" 2>&1 &&
     $root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}" >>"$log" 2>&1; then
    rm -f "$log"
    exit 0
  fi
  tail -n 20 "$log" >&2
  rm -f "$log"
  echo "apt-get failed. The command was: $install" >&2
fi

if [ ${#required[@]} -gt 0 ]; then exit 1; fi
echo "Going on without them: Bazel will download their sources." >&2
