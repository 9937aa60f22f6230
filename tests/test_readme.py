"""What the READMEs point at is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *(ROOT.glob("[!.]*/README.md")), *(ROOT / "sim").glob("*/README.md")]


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _leads_somewhere(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    return target.exists() and (not anchor or anchor in _anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_readme_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not _leads_somewhere(page, link)] == []


def test_the_contents_name_every_section_of_the_readme() -> None:
    page = ROOT / "README.md"
    contents = set(re.findall(r"\]\(#([^)]+)\)", page.read_text(encoding="utf-8")))
    sections = re.findall(r"^##+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {section.lower().replace(" ", "-") for section in sections} <= contents
