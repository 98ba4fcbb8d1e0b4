#!/usr/bin/env python3
"""Writes the inputs with which each target's test begins, TARGET.hex.

    tests/fuzz/keep_seeds.py [FOLDER]

FOLDER is where run.sh has put its corpora (default: .cache/fuzz). From each corpus it keeps inputs that reach
different code, some for each length.
"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
MOST_INPUTS = 40
MOST_BYTES = 400  # of one input


def seeds_of(program: pathlib.Path, corpus: pathlib.Path) -> list[bytes]:
    """Returns inputs of a corpus that together reach all code that its inputs of that size reach."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(program), "-merge=1", f"-max_len={MOST_BYTES}", folder, str(corpus)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        inputs = [path.read_bytes() for path in pathlib.Path(folder).iterdir()]
    # A merge keeps hundreds, since it also counts how often an input runs a line.
    ordered = sorted({each for each in inputs if each}, key=lambda each: (len(each), each))
    return ordered[:: -(-len(ordered) // MOST_INPUTS)]


def main() -> int:
    """Returns 0 if there was a corpus for each target."""
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".cache/fuzz")
    for target in sorted(HERE.glob("*_fuzz.cc")):
        seeds = seeds_of(out / f"{target.stem}.bin", out / target.stem)
        target.with_suffix(".hex").write_text("".join(f"{seed.hex()}\n" for seed in seeds))
        print(f"{target.stem}: {len(seeds)} inputs, {sum(map(len, seeds))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
