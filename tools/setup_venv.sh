#!/bin/bash
# Makes a virtual environment: setup_venv.sh tf-2.15.1 (TensorFlow and what the tests need), setup_venv.sh
# gpu-2.15.1 (likewise, with the TensorFlow that has kernels for GPUs), setup_venv.sh torch-2.13.0 (PyTorch
# for CPUs, without TensorFlow), setup_venv.sh lint, setup_venv.sh docs (the site), setup_venv.sh bench (the driver of the benchmarks), setup_venv.sh openmpi (Open MPI 5, which
# Debian 12 does not have), setup_venv.sh sagemaker-2.15.1 (SageMaker's training toolkit, on top of the
# environment tf-2.15.1), setup_venv.sh s3-2.15.1 (a server for S3 and tensorflow-io, likewise).
# Starts from nothing each time, so that an interrupted installation leaves nothing half done.
set -eu
cd "$(dirname "$0")/.."

name=${1:?usage: setup_venv.sh tf-VERSION|gpu-VERSION|torch-VERSION|lint|docs|bench|openmpi|sagemaker-VERSION|s3-VERSION}
venv=.venv/$name
case $name in
  lint | docs | bench | openmpi)
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
    [ "$(printf '2.16\n%s\n' "$version" | sort -V | head -n 1)" != 2.16 ] || alone="tf_keras==${version%.*}.*"
    ;;
  torch-*)
    python=$(tools/choose_python.sh any)
    torch="torch==${name#*-}"
    # PyPI's package for x86-64 is that for GPUs. pytorch.org has the other one, and so have some mirrors.
    [ "$(uname -m)" != x86_64 ] || torch+=+cpu
    packages=(-r tools/requirements-torch.txt)
    ;;
  sagemaker-* | s3-*)
    version=${name#*-}
    below=$PWD/.venv/tf-$version
    python=$below/bin/python
    packages=(-r "tools/requirements-${name%%-*}.txt")
    # The toolkit wants a newer protobuf than TensorFlow 2.15 says that it can use, so pip warns; with this
    # one both work.
    [ "${name%.*}" != sagemaker-2.15 ] || packages+=('protobuf<6')
    # What starts parameter servers. It asks for an older toolkit and an older numpy.
    [ "$name" != "sagemaker-$version" ] || alone=sagemaker-tensorflow-training==20.5.0
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
# Python and pip find packages of the environment below after those of this one.
[ -z "${below:-}" ] || "$venv/bin/python" - "$below" <<'EOF'
import pathlib, sys, sysconfig
own, below = pathlib.Path(sysconfig.get_path("purelib")), pathlib.Path(sys.argv[1])
(own / "below.pth").write_text(f"{below / own.relative_to(sys.prefix)}\n")
EOF
"$venv/bin/python" -m pip install --quiet "${packages[@]}"
[ -z "${alone:-}" ] || "$venv/bin/python" -m pip install --quiet --no-deps "$alone"
# The build for CPUs, without what it requires: requirements-torch.txt has that. Where no index has one, it is PyPI's, with
# gigabytes of CUDA.
[ -z "${torch:-}" ] || "$venv/bin/python" -m pip install --quiet --no-deps "$torch" ||
  "$venv/bin/python" -m pip install --no-deps --index-url https://download.pytorch.org/whl/cpu "$torch" ||
  "$venv/bin/python" -m pip install --quiet "${torch%+cpu}"
touch "$venv/.requirements"
