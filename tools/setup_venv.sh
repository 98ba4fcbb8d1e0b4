#!/bin/bash
# Makes a virtual environment: setup_venv.sh tf-2.15.1 (TensorFlow and what the tests need), setup_venv.sh
# gpu-2.15.1 (likewise, with the TensorFlow that has kernels for GPUs), setup_venv.sh lint, setup_venv.sh bench
# (the driver of the benchmarks), setup_venv.sh openmpi (Open MPI 5, which Debian 12 does not have).
# Starts from nothing each time, so that an interrupted installation leaves nothing half done.
set -eu
cd "$(dirname "$0")/.."

name=${1:?usage: setup_venv.sh tf-VERSION|gpu-VERSION|lint|bench|openmpi}
venv=.venv/$name
case $name in
  lint | bench | openmpi)
    python=$(tools/choose_python.sh any)
    packages=(-r "tools/requirements-$name.txt")
    ;;
  tf-* | gpu-*)
    version=${name#*-}
    python=$(tools/choose_python.sh "$version")
    # The CPU build is half the size; other processors only have the plain name.
    distribution=tensorflow
    [ "${name%-*} $(uname -m)" != "tf x86_64" ] || distribution=tensorflow-cpu
    packages=("$distribution==$version" -r tools/requirements-test.txt)
    # Legacy Keras, a package of its own from 2.16 on. It would bring the other distribution along.
    [ "$(printf '2.16\n%s\n' "$version" | sort -V | head -n 1)" != 2.16 ] || legacy_keras="tf_keras==${version%.*}.*"
    ;;
  *)
    echo "setup_venv.sh: unknown environment: $name" >&2
    exit 2
    ;;
esac

echo "Setting up $venv with $python: ${packages[*]}"
rm -rf "$venv"
mkdir -p .venv
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet "${packages[@]}"
[ -z "${legacy_keras:-}" ] || "$venv/bin/python" -m pip install --quiet --no-deps "$legacy_keras"
touch "$venv/.requirements"
