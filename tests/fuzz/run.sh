#!/bin/sh
# Builds each target of this folder with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, and runs it
# for SECONDS_EACH seconds (default: 5). Needs clang; on Debian: apt-get install clang. Its findings lie in the
# folder OUT (default: .cache/fuzz), as does the corpus, which the next run goes on with.
#     tests/fuzz/run.sh [SECONDS_EACH [TARGET...]]
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-5}
[ $# -eq 0 ] || shift
targets=" $* "
out=${OUT:-.cache/fuzz}
flags="-g -O1 -std=c++17 -I. -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined"
run() {  # the target's name, and the sources that it needs
  name=$1
  shift
  case "$targets" in *" $name "* | "  ") ;; *) return 0 ;; esac
  mkdir -p "$out/$name"
  # shellcheck disable=SC2086
  clang++ $flags "tests/fuzz/$name.cc" "$@" -o "$out/$name.bin"
  echo "$name: $seconds s"
  "$out/$name.bin" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$out/$name-" "$out/$name" 2> "$out/$name.log" || { tail -40 "$out/$name.log"; exit 1; }
  grep -E "number_of_executed_units|peak_rss" "$out/$name.log"
}
texts="kernels/common/utf8.cc"
manifest="kernels/control/manifest.cc kernels/common/types.cc kernels/common/number_text.cc $texts"
# shellcheck disable=SC2086
{
  run relay_message_fuzz kernels/control/relay_message.cc kernels/control/descriptions.cc $manifest
  run manifest_fuzz $manifest
  run bootstrap_messages_fuzz kernels/control/bootstrap_messages.cc $texts
  run launch_log_fuzz kernels/control/launch_log.cc
  run failure_record_fuzz kernels/control/failure_record.cc kernels/control/abort_record.cc $texts
  run readiness_table_fuzz kernels/control/readiness_table.cc kernels/control/abort_record.cc $manifest
  run progress_record_fuzz $manifest
}
