"""The pages in docs/ agree with the code, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from sbpjax.cost.exposure import ACROSS_NODES, INSIDE_NODE
from sbpjax.strategy import shipped

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_exposed_shares_are_those_of_the_cost_model():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\s*\| an? (?:updated )?(\w+)[^|]*\| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    names = {"value": "result"}
    shares = {names.get(what, what): (float(inside), float(across)) for what, inside, across in rows}
    assert shares == {purpose: (INSIDE_NODE[purpose], ACROSS_NODES[purpose]) for purpose in INSIDE_NODE}


def test_every_shipped_strategy_is_named():
    for page in (ROOT / "README.md", ROOT / "docs" / "strategies.md", ROOT / "CHANGELOG.md"):
        text = page.read_text(encoding="utf-8")
        assert [name for name in shipped() if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_files_that_are_named_exist():
    for page in PAGES:
        for name in re.findall(
            r"`((?:sbpjax|tests|strategies|docs|notebooks)/[\w./-]+)`", page.read_text(encoding="utf-8")
        ):
            if "NAME" not in name:
                assert (ROOT / name).exists(), f"{page.name} names {name}"
