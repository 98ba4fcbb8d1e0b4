"""Gives `python -m tf_smddp.distribute` the same hash seed on all ranks, so that sets have the same order.

It must be imported before TensorFlow, since it may start Python again, in the same process.
"""

import os
import sys


def _begin_again() -> None:
    if sys.argv[:1] != ["-m"] or os.environ.get("PYTHONHASHSEED", "") not in ("", "random"):
        return  # "-m" stands there while Python looks for the module
    with open("/proc/self/cmdline", encoding=sys.getfilesystemencoding(), errors="surrogateescape") as file:
        words = file.read().split("\0")[:-1]
    if words[-len(sys.argv)] == "tf_smddp.distribute":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, words)


_begin_again()
