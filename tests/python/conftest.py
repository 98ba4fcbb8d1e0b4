"""What all Python tests share: TensorFlow's log is kept to errors, in this process and in those that tests start."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
