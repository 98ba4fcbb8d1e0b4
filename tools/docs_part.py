"""The part `docs` of the test suite: the site is built, without a warning."""

import os
import time

from test_process import ROOT, finish, open_log, run
from test_results import Case, Result

DOCS_BIN = ROOT / ".venv" / "docs" / "bin"


def build_site() -> Result:
    """Builds the site into site/. That is one test: a link that leads nowhere is a warning, and fails it.

    (Not with --quiet, under which MkDocs counts no warnings.)
    """
    log, start = open_log("docs"), time.monotonic()
    # Material for MkDocs advertises its successor otherwise.
    env = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    code = run([str(DOCS_BIN / "mkdocs"), "build", "--strict"], log, 300, cwd=ROOT, env=env)
    case = Case("failed" if code else "passed", time.monotonic() - start)
    return finish("docs", {"mkdocs build --strict": case}, code, start, log)
