"""Sets up the peers that run.py compares with: setup_peers.py [NAME…]; all of them by default.

They come from Debian's and PyPI's registries, and are installed into .venv/peer-* and .cache/peers. A peer
that is installed already is kept. If one cannot be installed, this is reported, and the others still are; the
exit code is the number of failures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from peers.base import implementations


def main() -> int:
    peers = {one.name: one for one in implementations() if not one.ours}
    parser = argparse.ArgumentParser(description="Set up the peers of the benchmarks.")
    parser.add_argument("name", nargs="*", help=f"the peers to install: {', '.join(peers)}; default: all")
    names = parser.parse_args().name or list(peers)
    unknown = sorted(set(names) - set(peers))
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(peers)}")
    failed = []
    for name in names:
        try:
            peers[name].set_up()
        except (subprocess.CalledProcessError, OSError) as error:
            failed.append(name)
            print(f"{name}: {error}", file=sys.stderr)
    for name in names:
        print(f"{peers[name].title:30} {peers[name].version() or 'NOT INSTALLED'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
