"""Starts the ranks of peers that have no launcher of their own: launch.py RANKS COMMAND….

Each rank gets the variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and WORKERS (an address with a free
port of this machine for each rank, separated by commas). When a rank fails or this process gets SIGTERM, the
other ranks are ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from typing import List


def free_ports(count: int) -> List[int]:
    """Returns ports that are free at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def main() -> int:
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    master, *ports = free_ports(ranks + 1)
    environment = dict(
        os.environ,
        WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(master),
        WORKERS=",".join(f"127.0.0.1:{port}" for port in ports),
    )
    processes = [subprocess.Popen(command, env=dict(environment, RANK=str(rank))) for rank in range(ranks)]

    def end(*_: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.terminate()

    signal.signal(signal.SIGTERM, end)
    code = 0
    while any(process.poll() is None for process in processes):
        failed = [process.returncode for process in processes if process.returncode]
        if failed and not code:
            code = failed[0]
            end()
        time.sleep(0.05)
    return code or next((process.returncode for process in processes if process.returncode), 0)


if __name__ == "__main__":
    sys.exit(main())
