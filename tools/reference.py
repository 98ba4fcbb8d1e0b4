"""Writes the signatures and docstrings of the public names into docs/reference, as plain Markdown.

python tools/reference.py     # rewrites the pages; tests/docs fails where one is older than the sources

A page has a heading for each name, such as `### tf_smddp.allreduce`. The text below it, up to the next
heading of this level or above, is written here. The sources are read, and not imported.
"""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
from typing import Iterator, List, Tuple, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
HEADING = re.compile(r"^### (tf_smddp\.[\w.]+)$\n", re.MULTILINE)
# Methods that Keras, sessions and our modules call are no part of the reference; nor are a wrapped tape's.
NOT_SHOWN = re.compile(r"_|on_|(set_model|begin|end|after_create_session|check_included)$")
WRAPPED = "As `tf.GradientTape."
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
ENTRY = re.compile(r"([\w*][\w.*, ]*): (.*)")

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
Definition = Union[Function, ast.ClassDef]


def find(name: str) -> Definition:
    """Returns the definition of a public name, for which the imports of packages are followed."""
    module, _, name = name.rpartition(".")
    while True:
        path = ROOT.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        imported = ""
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom) and name in (each.name for each in node.names):
                imported = node.module or ""
        if not imported:
            raise LookupError(f"{path} neither defines nor imports {name}")
        module = imported


def signature(name: str, function: Function, is_method: bool) -> str:
    """Returns a block of code with a function's parameters, each on a line of its own if they are many."""
    arguments = function.args
    if is_method and not any("staticmethod" in ast.unparse(each) for each in function.decorator_list):
        (arguments.posonlyargs or arguments.args).pop(0)
    result = (
        f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    )
    own = list(parameters(arguments))
    line = f"{name}({', '.join(own)}){result}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in own) + f"){result}"
    return f"```text\n{line}\n```\n"


def parameters(arguments: ast.arguments) -> Iterator[str]:
    """Returns the parameters one by one, as they are written."""
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs: List[Tuple[ast.arg, Union[ast.expr, None]]] = list(zip(positional, defaults))
    for argument, default in pairs:
        yield ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")
    if arguments.vararg or arguments.kwonlyargs:
        yield f"*{ast.unparse(arguments.vararg)}" if arguments.vararg else "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        yield ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def markdown(docstring: str) -> str:
    """Returns a Google docstring as Markdown: each of its sections is a list."""
    lines: List[str] = []
    section = ""
    for line in inspect.cleandoc(docstring).splitlines():
        found = SECTION.fullmatch(line)
        if found:
            section = found[1]
            lines += [f"**{section}**", ""]
        elif not section or not line.startswith(" "):
            section = section if not line else ""
            lines.append(line)
        elif line.startswith("     ") or section in ("Returns", "Yields"):
            lines.append(f"  {line.strip()}" if section not in ("Returns", "Yields") else line.strip())
        else:
            entry = ENTRY.fullmatch(line.strip())
            names = ", ".join(f"`{each}`" for each in entry[1].split(", ")) if entry else ""
            lines.append(f"- {names}: {entry[2]}" if entry else f"- {line.strip()}")
    return "\n".join(lines) + "\n"


def entry(name: str) -> str:
    """Returns the Markdown of one public name: its signature, its docstring, and those of its methods."""
    node = find(name)
    short = name.rpartition(".")[2]
    if not isinstance(node, ast.ClassDef):
        return f"{signature(short, node, False)}\n{markdown(ast.get_docstring(node) or '')}"
    parts = [markdown(ast.get_docstring(node) or "")]
    values = [
        each for each in node.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]).isupper()
    ]
    if values:
        parts.append(", ".join(f"`{short}.{ast.unparse(each.targets[0])}`" for each in values) + "\n")
    for each in node.body:
        if not isinstance(each, ast.FunctionDef):
            continue
        text = ast.get_docstring(each)
        if each.name == "__init__" and text:
            parts[:1] = [signature(short, each, True), parts[0], markdown(text)]
        elif text and not NOT_SHOWN.match(each.name) and not text.startswith(WRAPPED):
            is_property = any(ast.unparse(mark) == "property" for mark in each.decorator_list)
            shown = f"`{each.name}`\n" if is_property else signature(each.name, each, True)
            parts.append(f"#### {short}.{each.name}\n\n{shown}\n{markdown(text)}")
    return "\n".join(parts)


def filled(page: str) -> str:
    """Returns the text of a page with the entries of all names that it has headings for."""
    parts = HEADING.split(page)
    text = parts[0]
    for name, rest in zip(parts[1::2], parts[2::2]):
        following = re.search(r"^#{1,3} ", rest, re.MULTILINE)
        kept = rest[following.start() :] if following else ""
        text += f"### {name}\n\n{entry(name).rstrip()}\n" + (
            f"\n{kept}" if kept else "\n" if name != parts[-2] else ""
        )
    return text


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(filled(path.read_text()))
