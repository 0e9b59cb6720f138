"""What contributors read first names what is there: pages, commands, versions, packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import weft
from weft._api import MODULES

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
MADE = {"index.md", "contributing.md", "changelog.md", "reference/index.md"}
"""Pages that tools/website.py adds to those in docs/."""
LINKING = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{page}" for page in PAGES)]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation():
    navigation = read("mkdocs.yml").partition("\nnav:\n")[2]
    listed = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted({*PAGES, *MADE})


def test_every_decision_is_in_both_lists():
    records = sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))
    assert [name[:4] for name in records] == [f"{number + 1:04}" for number in range(len(records))]
    for name in records:
        assert f"]({name})" in read("docs/decisions/index.md")
        assert re.match(r"# \d+\. .+\n\nDecided on [\d-]+\.\n\n## Context\n", read(f"docs/decisions/{name}"))


@pytest.mark.parametrize("name", LINKING)
def test_links_between_files_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", read(name)):
        if "://" not in target:
            assert (ROOT / name).parent.joinpath(target).exists(), target


def test_commands_that_are_named_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))
    for name in ("CONTRIBUTING.md", "README.md", ".github/pull_request_template.md", ".github/workflows/ci.yml"):
        named = set(re.findall(r"(?:`|^ +|run: )make ([a-z-]+)", read(name), re.MULTILINE))
        assert named, name
        assert named <= targets, name


def test_files_that_are_named_exist():
    named = re.findall(r"`((?:src|tests|docs|tools)/[\w/.]*)`", read("CONTRIBUTING.md"))
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).exists(), name


def test_versions_agree():
    assert weft.version.weft == PROJECT["version"]
    releases = re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert releases[0] == "Unreleased"
    assert PROJECT["version"] in (releases[1] if releases[1:] else read("CHANGELOG.md"))


@pytest.mark.parametrize("name", ["ruff", "clang-format"])
def test_the_hooks_have_the_version_of_the_linter(name):
    (tool,) = (need for need in PROJECT["optional-dependencies"]["dev"] if need.startswith(f"{name}=="))
    assert set(re.findall(rf"{name}==[\d.]+", read(".pre-commit-config.yaml"))) == {tool}


def test_pythons_agree():
    supported = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if " :: 3." in name]
    assert f"VERSIONS := {' '.join(supported)}\n" in read("Makefile")
    quoted = ", ".join(f'"{version}"' for version in supported)
    assert f"python: [{quoted}]" in read(".github/workflows/ci.yml")


def test_every_public_package_is_loaded_by_name():
    here = Path(weft.__file__).parent
    packages = {path.stem for path in here.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    rows = {"ops"}  # exported by others
    named = {"__config__", "__future__", "_prims_common", "_utils"}  # as in PyTorch, whose programs call them so
    assert {name for name in packages if not name.startswith("_")} | named == MODULES | rows
