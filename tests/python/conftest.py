"""What all Python tests share: TensorFlow logs errors only, here and in the processes that tests start."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
