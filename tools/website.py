"""What the documentation site has besides the pages of docs/: the README as its start page, and the API reference.

mkdocs calls the functions (`hooks` in mkdocs.yml). The pages are made while it builds, and kept nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import reference  # beside this file, where mkdocs looks while it loads hooks

ROOT = Path(__file__).resolve().parent.parent
FROM_ABOVE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
OUTSIDE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^\s\">]+")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that do not stand in docs/."""
    for name, place in FROM_ABOVE.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        for other, there in FROM_ABOVE.items():
            text = text.replace(f"]({other}", f"]({there}")
        files.append(File.generated(config, place, content=text))
    pages = reference.pages()
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    rows = "".join(f"| [{name}]({name}.md) | {summary(text)} |\n" for name, text in pages.items())
    overview = f"# API reference\n\n| module | what it has |\n|---|---|\n{rows}"
    files.append(File.generated(config, "reference/index.md", content=overview))
    return files


def summary(page: str) -> str:
    """The first sentence below the heading."""
    text = page.split("\n\n")[1].replace("\n", " ")
    return "" if text.startswith(("|", "#", "```")) else text


def on_post_build(*, config: Any) -> None:
    """Refuse pages that load anything from the network."""
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        if found := OUTSIDE.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.relative_to(config.site_dir)} loads from the network: {found.group()}")
