"""Links of the documents lead to files and headings of the repository, and the reference has every name."""

import ast
import pathlib
import re
import unicodedata

import pytest
import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text):
    """The anchors of a document's headings, as a forge makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        words = unicodedata.normalize("NFC", re.sub(r"[^\w\- ]", "", words))
        found.add(words.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links(document):
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.is_file() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert not broken


def all_of(path):
    """The names in `__all__` of a module, which is not imported."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no __all__")


def test_the_reference_has_each_public_name_once():
    names = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        names += reference.HEADING.findall(page.read_text())
    public = {f"tf_smddp.{name}" for name in all_of("tf_smddp/__init__.py") - {"global_process_set"}}
    public |= {f"tf_smddp.keras.callbacks.{name}" for name in all_of("tf_smddp/keras/callbacks/__init__.py")}
    public |= {f"tf_smddp.distribute.{name}" for name in all_of("tf_smddp/distribute/__init__.py")}
    assert sorted(names) == sorted(public)
    assert "### global_process_set" in (ROOT / "docs" / "reference" / "job.md").read_text()


@pytest.mark.parametrize("page", sorted(reference.PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_the_reference_has_the_docstrings_of_the_sources(page):
    text = page.read_text()
    assert reference.filled(text) == text, "run `python tools/reference.py`"
    assert reference.filled(text.replace("Collective: ", "Alone: ")) == text
