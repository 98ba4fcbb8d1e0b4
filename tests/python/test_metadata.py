"""The installed package as pip shows it: its authors, its licence, README.md. It has no home page yet."""

import importlib.metadata

import pytest
from harness import ROOT


@pytest.mark.one_tensorflow
def test_metadata():
    installed = importlib.metadata.distribution("tf_smddp")
    metadata = installed.metadata
    assert metadata["Author"] == "The tf_smddp authors"
    assert metadata["License"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    # Perhaps that of an earlier README.md, where only Python's files were renewed.
    assert metadata["Description"].startswith((ROOT / "README.md").read_text().split("\n\n")[0])
    assert "\n## Install\n" in metadata["Description"]
    licence = next(file for file in installed.files if file.name == "LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()
