"""Hooks of MkDocs: README.md is the first page, and files outside of docs/ that pages link to are pages, too.

So each link in a document is one that works in the repository, and mkdocs.yml names this file. A Markdown
file of the repository becomes a page with the same path, and any other text file a page that shows it.
"""

from __future__ import annotations

import logging
import os
import pathlib
import posixpath
import re
from typing import Any, Dict, List

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parent.parent
# [text](target) and ![text](target), with an optional #anchor.
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
# Elements that load something from another host.
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\s(?:src|href)="((?:https?:)?//[^"]*)"')
CELL = re.compile(r"<td[^>]*>[^<]*</td>")
TIME = re.compile(r"(\d) (ns|µs|ms|s)\b")
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".h": "cpp", ".cc": "cpp"}

# From the path of a page on the site to that of its file in the repository.
_sources: Dict[str, str] = {}


def on_files(files: Files, config: Any) -> Files:
    """Adds README.md, and then what pages link to, until nothing is missing."""
    _sources.clear()
    for file in files.documentation_pages():
        _sources[file.src_uri] = f"docs/{file.src_uri}"
    waiting = ["README.md", *_sources.values()]
    while waiting:
        source = waiting.pop()
        text = (ROOT / source).read_text()
        place = place_of(source)
        if place not in _sources:
            _sources[place] = source
            shown = text if source.endswith(".md") else as_page(source, text)
            files.append(File.generated(config, place, content=shown))
        if source.endswith(".md"):
            waiting += [each for each in outside(source, text) if place_of(each) not in _sources]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes the links of a page lead to the places on the site."""
    source = _sources[page.file.src_uri]

    def moved(match: re.Match[str]) -> str:
        target = resolved(source, match[2])
        if target is None:
            return match[0]
        path = posixpath.relpath(place_of(target), posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{path}{match[3]}"

    return LINK.sub(moved, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Lets tables of measurements break in the longest head of a column, and not before a unit."""
    html = html.replace("MultiWorkerMirroredStrategy</th>", "MultiWorker<wbr>Mirrored<wbr>Strategy</th>")
    return CELL.sub(lambda cell: TIME.sub(r"\1&nbsp;\2", cell[0]), html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Warns, and so fails a strict build, where a page loads anything from another host."""
    for address in ELSEWHERE.findall(output):
        logging.getLogger("mkdocs.hooks").warning("%s loads %s from another host", page.file.src_uri, address)
    return output


def place_of(source: str) -> str:
    """Returns the path on the site of a file of the repository."""
    if source == "README.md":
        return "index.md"
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    return source if source.endswith(".md") else f"{source}.md"


def resolved(source: str, target: str) -> str | None:
    """Returns the file of the repository that a link in `source` leads to; None if it is none."""
    path = os.path.normpath(posixpath.join(posixpath.dirname(source), target))
    return path if not path.startswith("..") and (ROOT / path).is_file() else None


def outside(source: str, text: str) -> List[str]:
    """Returns the files outside of docs/ that a document links to."""
    targets = (resolved(source, match[2]) for match in LINK.finditer(text))
    return [target for target in targets if target and not target.startswith("docs/")]


def as_page(source: str, text: str) -> str:
    """Returns a page that shows a text file."""
    language = LANGUAGES.get(pathlib.Path(source).suffix, "text")
    return f"# {source}\n\n````{language}\n{text}````\n"
