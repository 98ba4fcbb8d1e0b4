"""The errors by which a collective fails: TensorFlow's, see docs/troubleshooting.md.

SageMaker's training toolkit lists the classes of this module, to find their names in a script's output.
SMDDP's own classes are not documented, and tf_smddp raises none of its own. Mistakes in arguments are
Python's TypeError, ValueError and RuntimeError, which need no import.
"""

from tensorflow.errors import FailedPreconditionError, InternalError, InvalidArgumentError

__all__ = ["FailedPreconditionError", "InternalError", "InvalidArgumentError"]
