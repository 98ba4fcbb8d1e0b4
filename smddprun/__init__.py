"""smddprun starts, watches and ends the ranks of one job. `docs/launcher.md` is its manual.

It is not part of tf_smddp, because ``import tf_smddp`` imports TensorFlow and loads the op library. The
launcher needs only the standard library and psutil. `notebook`, which is `tf_smddp.run`, and `check` also use
smddp.
"""

__version__ = "0.1.0"
