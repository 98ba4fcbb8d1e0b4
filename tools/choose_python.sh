#!/bin/bash
# Prints the path of a Python for a TensorFlow version: choose_python.sh 2.15.1, or `any` for tools alone.
# The first of $PYTHON, python3, Debian's /usr/bin/python3, python3.13 … python3.9 that is of a suitable
# version and can make virtual environments. Exits with 1 and says what is missing if there is none.
set -eu

tensorflow=${1:?usage: choose_python.sh TENSORFLOW_VERSION|any}
case $tensorflow in
  any) first=9 last=99 ;;
  2.15.*) first=9 last=11 ;;
  2.1[6-9].* | 2.20.*) first=9 last=12 ;;
  *) first=10 last=13 ;;
esac

probe='
import ensurepip, sys, venv
if sys.version_info[0] != 3 or not int(sys.argv[1]) <= sys.version_info[1] <= int(sys.argv[2]):
    sys.exit(1)
'
seen=
for name in ${PYTHON:-python3 /usr/bin/python3 python3.13 python3.12 python3.11 python3.10 python3.9}; do
  path=$(command -v "$name") || continue
  if "$path" -c "$probe" "$first" "$last" 2>/dev/null; then
    echo "$path"
    exit 0
  fi
  seen="$seen $path ($("$path" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo broken))"
done

if [ "$tensorflow" = any ]; then
  echo "No Python 3.9 or later with the venv module." >&2
else
  echo "TensorFlow $tensorflow needs Python 3.$first to 3.$last with the venv module." >&2
fi
echo "Looked at:${seen:- nothing, no Python was found}." >&2
echo "Install one and name it: make PYTHON=/path/to/python3.$first …" >&2
if [ "$last" = 11 ]; then
  echo "Or use a newer TensorFlow alone: make demo TF=2.21.0, make python-test TF=2.21.0." >&2
fi
exit 1
