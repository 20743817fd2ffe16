"""Generates documents from code, or with --check reports whether they are up to date."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# document -> module whose to_markdown() returns its text
DOCUMENTS = {
    "docs/lifecycle.md": "holdfast.core.lifecycle",
    "docs/reference.md": "scripts.reference",
    "docs/topologies/capabilities.md": "scripts.capability_reference",
}


def render(module_name: str) -> str | None:
    """Returns the document's text, or None if the module or its to_markdown() does not exist."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            return None
        raise
    to_markdown = getattr(module, "to_markdown", None)
    return None if to_markdown is None else str(to_markdown())


def stale_documents(root: Path) -> dict[str, str]:
    """Returns every document whose file differs from the generated text, with that text."""
    rendered = {name: render(module) for name, module in DOCUMENTS.items()}
    return {name: text for name, text in rendered.items() if text is not None and _read(root / name) != text}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.generate_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a document is stale")
    options = parser.parse_args(argv)
    stale = stale_documents(ROOT)
    if options.check:
        if stale:
            print(f"docs: stale: {', '.join(sorted(stale))}; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name, text in stale.items():
        (ROOT / name).write_text(text)
    print(f"docs: {len(stale)} of {len(DOCUMENTS)} documents changed")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
