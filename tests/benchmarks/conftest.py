"""The benchmarks' own folder is where their modules import each other from."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks" / "cluster"))
