"""A worker or parameter server of TensorFlow's, which runs no script. Only this module imports TensorFlow."""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    """Runs the server that TF_CONFIG names. It does not return: roles.py ends the process."""
    import tensorflow as tf

    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    # An op of each task may wait in the server, and another op must be able to run meanwhile.
    threads = sum(map(len, cluster.values())) + 1
    settings = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    tf.distribute.Server(cluster, task["type"], task["index"], config=settings).join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
