#!/bin/bash
# Compiles the element kernels (kernels/reduce) and their tests for 64-bit Arm, and runs the tests in qemu: the
# NEON kernels against the same references as on x86-64. On Debian 12, x86-64, with the packages
# g++-aarch64-linux-gnu and qemu-user. Highway and GoogleTest for Arm come from Debian into .cache/arm; the
# system's own list of packages stays as it is. Takes some minutes.
set -eu
cd "$(dirname "$0")/.."

work=$PWD/.cache/arm
root=$work/root
objects=$work/objects
libraries=$root/usr/lib/aarch64-linux-gnu
mkdir -p "$work"/{lists,cache/archives}/partial "$work/debs" "$objects"

if [ ! -e "$libraries/libgtest.a" ]; then
  apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$work/lists"
    -o Dir::State::status=/dev/null -o Dir::Cache="$work/cache")
  apt-get "${apt[@]}" update
  (cd "$work/debs" && apt-get "${apt[@]}" download libgtest-dev libhwy-dev libhwy1)
  for package in "$work"/debs/*.deb; do dpkg -x "$package" "$root"; done
fi

printf '%s\n' kernels/common/types.cc kernels/reduce/*.cc tests/cpp/reduce/*.cc |
  OBJECTS=$objects INCLUDE=$root/usr/include xargs -P "$(nproc)" -I {} sh -c '
    aarch64-linux-gnu-g++ -std=c++17 -O2 -ffp-contract=off -I . -isystem "$INCLUDE" -c {} \
      -o "$OBJECTS/$(echo {} | tr / _).o"'

for source in tests/cpp/reduce/*_test.cc; do
  test=$(basename "$source" .cc)
  aarch64-linux-gnu-g++ "$objects/tests_cpp_reduce_$test.cc.o" "$objects/tests_cpp_reduce_reference.cc.o" \
    "$objects"/kernels_*.o -L "$libraries" -lgtest_main -lgtest -lhwy -lpthread -o "$work/$test"
  echo "$test"
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" "$work/$test" --gtest_brief=1
done
