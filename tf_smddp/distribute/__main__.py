"""python -m tf_smddp.distribute script.py: runs a script of tf.distribute's on the ranks of a job."""

import os
import runpy
import sys

USAGE = """\
usage: smddprun -np N python -m tf_smddp.distribute script.py [arguments of the script...]
       smddprun -np N python -m tf_smddp.distribute -m module [arguments of the module...]

Runs a script that was written for tf.distribute, unmodified, with the ranks of the job as replicas.
docs/distribute.md says what it does.
"""


def main() -> None:
    """Runs the script that the command line names."""
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return
    if words in ([], ["-m"]):
        print(USAGE, end="", file=sys.stderr)
        sys.exit(2)
    if words[0] != "-m" and not os.path.isfile(words[0]):
        sys.exit(f"tf_smddp.distribute: there is no script {words[0]!r} (working directory {os.getcwd()})")

    from tf_smddp.distribute._unmodified import install

    install()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
