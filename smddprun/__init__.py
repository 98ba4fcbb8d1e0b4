"""smddprun: starts, watches and ends the ranks of one job.

A package of its own, not part of tf_smddp, because ``import tf_smddp`` imports TensorFlow and loads the op
library. The launcher needs the standard library and psutil only. `docs/launcher.md` is its manual.
"""

__version__ = "0.1.0"
