#!/bin/bash
# library_test.sh LIBRARY HEADER: the library exports the functions of the header and nothing else, and needs no
# library but those of the C and C++ languages.
set -euo pipefail
library=$1 header=$2
fail() {
  echo "$library: $1"
  exit 1
}

declared=$(sed -nE 's/^[a-z][a-z_0-9 ]*[ *]+(smddp_[a-z_]+)\(.*/\1/p' "$header" | sort -u)
[ "$(wc -w <<<"$declared")" -gt 30 ] || fail "only these functions were found in $header: $declared"
exported=$(nm -D --defined-only --extern-only "$library" | awk '{print $NF}' | sort -u)
difference=$(diff <(echo "$declared") <(echo "$exported")) || fail "not what $header declares:
$difference"

needed=$(readelf -d "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
grep -q '^libc\.' <<<"$needed" || fail "readelf shows no libraries that it needs: $needed"
others=$(grep -vE '^(libstdc\+\+|libc|libm|libgcc_s|libdl|libpthread|librt|ld-linux-[a-z0-9-]+)\.so\.[0-9]+$' <<<"$needed" || true)
[ -z "$others" ] || fail "needs $others"
