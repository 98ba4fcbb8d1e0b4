"""Each text that docs/troubleshooting.md quotes is one that the sources have, and it quotes each warning."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
FOLDERS = {
    **dict.fromkeys(("smddp", "tf_smddp", "torch_smddp", "smddprun"), ("*.py",)),
    "kernels": ("*.cc", "*.h"),
}
PATHS = [
    path for folder, ends in FOLDERS.items() for end in ends for path in sorted((ROOT / folder).rglob(end))
]
# A text has this in place of a value: an expression of Python's, or one between two strings in C++.
VALUE = "\x00"


def texts_of(source):
    """The strings of a file as they are put together, with VALUE for what is not in them."""
    source = re.sub(r"\{(?:library\.front_end|us)\}", "tf_smddp", source)
    source = re.sub(r'\\"', "'", source)
    source = re.sub(r'"\s*\n?\s*f?"', "", source)  # neighbours are one string
    source = re.sub(r"\{[^{}\n]*\}", VALUE, source)  # f"{value}"
    return re.sub(r'"\s*\+[^;"]*\+\s*"', VALUE, source)  # "a" + value + "b"


@pytest.fixture(scope="module")
def sources():
    return "\n".join(texts_of(path.read_text()) for path in PATHS)


def pieces(text):
    """The pieces between the values of a quoted text."""
    return [each for each in (piece.strip() for piece in text.replace('"', "'").split("…")) if len(each) > 3]


QUOTED = re.findall(r"^> (.*)$", PAGE.read_text(), re.MULTILINE)


def test_there_are_texts():
    assert len(QUOTED) > 50
    assert len(set(QUOTED)) == len(QUOTED)


@pytest.mark.parametrize("text", QUOTED)
def test_the_sources_have_the_text(text, sources):
    assert pieces(text)
    missing = [piece for piece in pieces(text) if piece not in sources]
    assert not missing, f"docs/troubleshooting.md quotes what no source has: {missing}"


def test_a_text_that_is_not_there_is_found(sources):
    assert pieces("init() waited … s for rank(s) …") == ["init() waited", "s for rank(s)"]
    assert "init() waited a while for rank(s)" not in sources


def warnings_of_python(source):
    """The texts that a file of Python gives to `warnings.warn`, but those that it was given itself."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for call in calls:
        if ast.unparse(call.func) == "warnings.warn":
            yield text_of(call.args[0]).replace('"', "'")


def text_of(node):
    """The written-out part of an expression, with VALUE for the rest."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return "".join(map(text_of, node.values)) if isinstance(node, ast.JoinedStr) else VALUE


def warnings_of_cpp(source):
    """The texts that a C++ file logs as warnings or errors, but those that it was given itself."""
    for call in re.findall(r"LogLevel::k(?:Warning|Error),(.*?)\);", texts_of(source), re.DOTALL):
        yield VALUE.join(re.findall(r'"([^"]*)"', call))


def is_quoted(text):
    """Whether all pieces of a quoted text are in this one, in their order."""
    patterns = (".*".join(map(re.escape, pieces(quoted))) for quoted in QUOTED)
    return any(re.search(pattern, text, re.DOTALL) for pattern in patterns)


def test_the_page_has_each_warning():
    """Each that is written out where it is given. The page has only the errors that users meet."""
    texts = []
    for path in PATHS:
        texts += (warnings_of_python if path.suffix == ".py" else warnings_of_cpp)(path.read_text())
    texts = [text for text in texts if text.strip(VALUE)]
    assert len(texts) > 15
    missing = [text.replace(VALUE, "…") for text in texts if not is_quoted(text)]
    assert not missing, f"docs/troubleshooting.md has no entry for {missing}"


def test_no_text_installs_this_package_from_an_index():
    """There is none that has it. A stranger could own the name there, and run code on the user's host."""
    suffixes = {".py", ".md", ".cc", ".h", ".sh", ".yaml", ".yml", ".toml", ".ipynb", ""}
    folders = ["tf_smddp", "smddprun", "smdistributed", "kernels", "ops", "docs", "examples", "tests"]
    paths = [path for folder in (*folders, "benchmarks", "tools") for path in (ROOT / folder).rglob("*")]
    paths += ROOT.glob("*")
    named = re.compile(r"pip install([^\n`]*tf[_-]smddp\[|( -\S+)* ['\"]?tf[_-]smddp(?![\w*>/-]))")
    assert named.search("pip install 'tf_smddp[io]'") and not named.search("pip install tf_smddp-*.whl")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        if path.is_file() and path.suffix in suffixes and path != pathlib.Path(__file__)
        for match in named.finditer(path.read_text(errors="replace"))
    ]
    assert found == []
