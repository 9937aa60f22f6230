"""Pages to hand on, of every command: nothing is fetched, and everyone can read them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path

import browser
import pytest
from pages import NASTY, NASTY_PAGES, PAGES, html, page

from sim import pictures
from sim.html import parts
from sim.html.page import MOST_AT_ONCE, Folded, Page, Paragraph, Picture, Points, Section, Table, render

any_page = pytest.mark.parametrize("name", PAGES)
SCREENS = [(width, "", "light") for width in (320, 390, 1280)]
SCREENS += [(390, "", "dark"), (680, "print", "light")]
"""The last is A4 less its margins, in CSS pixels."""
VOID = {"wbr", "meta", "link", "br", "path", "use", "image", "rect"}
LEAST_CONTRAST = 4.5
"""Of text against what lies behind it (WCAG 2, level AA)."""
LEAST_CONTRAST_OF_BARS = 3.0
"""The same of what is drawn."""
DARK = "#15171a"


class Elements(HTMLParser):
    """Every element with its attributes, and the text of the page; AssertionError where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data.strip())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.found if found == tag]


@cache
def elements(name: str) -> Elements:
    return Elements(html(name))


def tables(name: str) -> list[Table]:
    return [each for section in page(name).sections for each in section.blocks if isinstance(each, Table)]


@any_page
def test_a_page_is_whole_and_its_ids_are_its_own(name: str) -> None:
    found = elements(name).found
    ids = Counter(attributes["id"] for _, attributes in found if "id" in attributes)
    assert max(ids.values()) == 1
    wanted = [attributes.get("href") or attributes.get("xlink:href") or "" for _, attributes in found]
    wanted += [f"#{part}" for _, a in found for part in (a.get("aria-labelledby") or "").split()]
    wanted += re.findall(r"url\((#[^)]*)\)", html(name))
    assert {each[1:] for each in wanted if each.startswith("#")} <= ids.keys()


@any_page
def test_a_page_names_nothing_that_would_be_fetched(name: str) -> None:
    places = ("src", "href", "xlink:href", "srcset", "data", "poster", "action")
    for tag, attributes in elements(name).found:
        assert tag not in {"script", "iframe", "object", "embed", "video", "audio", "form"}
        for place in places:
            assert (attributes.get(place) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", html(name))


@any_page
def test_pictures_are_told_to_those_who_do_not_see_them(name: str) -> None:
    pictures = elements(name).named("svg")
    blocks = [each for section in page(name).sections for each in section.blocks]
    assert len(pictures) == sum(isinstance(block, Picture) for block in blocks)
    for attributes in pictures:
        assert attributes["role"] == "img"
        title, description = (attributes["aria-labelledby"] or "").split()
        for part, tag in ((title, "title"), (description, "desc")):
            said = re.search(rf'<{tag} id="{part}">([^<]+)</{tag}>', html(name))
            assert said is not None
            assert len(said[1].strip()) > 10


@any_page
def test_tables_have_heads_and_captions_and_rows_have_names(name: str) -> None:
    found = tables(name)
    assert len(elements(name).named("table")) == len(found) >= 1
    for table in found:
        assert table.caption
        assert all(len(row) == len(table.head) for row in table.rows)
        assert table.rows
        assert set(table.groups) <= set(range(len(table.rows)))
        assert not table.groups or 0 in table.groups
    scopes = Counter(attributes["scope"] for attributes in elements(name).named("th"))
    assert scopes["col"] == sum(len(table.head) for table in found)
    assert scopes["row"] == sum(len(table.rows) for table in found)
    assert scopes["rowgroup"] == sum(len(table.groups) for table in found)


@any_page
def test_whatever_may_scroll_is_reached_by_keyboard_and_has_a_name(name: str) -> None:
    regions = [a for tag, a in elements(name).found if "wide" in (a.get("class") or "").split()]
    assert len(regions) == len(elements(name).named("table")) + len(elements(name).named("svg"))
    for attributes in regions:
        assert attributes["tabindex"] == "0"
        assert attributes["role"] == "group"
        assert attributes.get("aria-label") or attributes.get("aria-labelledby")
    long = sum("long" in (attributes["class"] or "").split() for attributes in regions)
    assert long == sum(len(table.rows) > MOST_AT_ONCE for table in tables(name))


@any_page
def test_no_markup_is_shown_as_text(name: str) -> None:
    assert not [word for word in elements(name).words if re.search(r"</?[a-z]|&[a-z]+;", word)]


def test_names_may_break_behind_their_dots_and_underscores() -> None:
    table = Table("Names.", ["name"], [["a.b_c"], ["1.5 is <no> name"]])
    shown = render(Page("?", [], [], [Section("a", "A", [table])]))
    assert "a.<wbr>b_<wbr>c" in shown
    assert "1.<wbr>5 is &lt;no&gt; name" in shown


def test_a_number_stays_with_its_per_cent() -> None:
    shown = render(Page("?", [], ["It is 5.0 +- 0.1 %."], []))
    assert "It is 5.0 ± 0.1\u00a0%." in shown


@any_page
def test_headings_follow_one_another(name: str) -> None:
    levels = [int(tag[1]) for tag, _ in elements(name).found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert 1 not in levels[1:]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    (root,) = elements(name).named("html")
    assert root["lang"] == "en"


@any_page
def test_the_question_is_answered_in_two_sentences(name: str) -> None:
    said = page(name).answer
    assert len(said) == 2
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in said)
    assert page(name).question in elements(name).words


@any_page
def test_a_page_says_where_it_comes_from(name: str) -> None:
    last = page(name).sections[-1]
    assert last.anchor == "provenance"
    table = last.blocks[0]
    assert isinstance(table, Table)
    told = {row[0]: row[1] for row in table.rows}
    assert {"specdec-sim", "seed", "SHA-256 of catalog and tables", "numpy"} <= told.keys()
    assert all(told.values())


@pytest.mark.parametrize("name", ["run", "levers", "levers, side by side", "investments", "sweep", "compare"])
def test_the_same_results_leave_the_same_bytes(name: str) -> None:
    assert render(PAGES[name]()) == html(name)


@pytest.mark.parametrize("name", NASTY_PAGES)
def test_what_users_write_is_text_on_every_page(name: str) -> None:
    shown = render(NASTY_PAGES[name]())
    assert "<script" not in shown
    assert "<b>" not in shown
    assert sum(NASTY in words for words in Elements(shown).words) >= 3


def test_text_is_text_in_every_kind_of_block() -> None:
    table = Table(NASTY, [NASTY], [[NASTY]], groups={0: NASTY})
    blocks = [Paragraph(NASTY), Points([NASTY]), Folded(NASTY, NASTY), table]
    shown = render(Page(NASTY, [NASTY], [NASTY], [Section("a", NASTY, blocks)]))
    assert "<script" not in shown
    assert Elements(shown).words.count(NASTY) >= 11


def test_a_page_names_files_but_no_folders_of_this_machine() -> None:
    found = {"a": "/home/me/runs.csv", "b": ["/x/y.yaml", "x/y", 3, None], "c": {"d": "tokens/s"}}
    assert parts.without_folders(found) == {
        "a": "runs.csv",
        "b": ["y.yaml", "x/y", 3, None],
        "c": {"d": "tokens/s"},
    }


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["page", "panel"])
@pytest.mark.parametrize("text", ["ink", "soft", "accent"])
def test_text_stands_out_from_what_lies_behind_it(scheme: int, behind: str, text: str) -> None:
    style = (resources.files("sim.html") / "templates/style.css").read_text()
    colours = [dict(re.findall(r"--(\w+): (#\w{6});", part)) for part in style.split(":root {")[1:3]]
    assert contrast(colours[scheme][text], colours[scheme][behind]) >= LEAST_CONTRAST


@pytest.mark.parametrize("behind", ["#ffffff", DARK])
def test_bars_stand_out_from_light_and_dark_pages(behind: str) -> None:
    bars = (pictures.BETTER, pictures.SLIGHTLY_BETTER, pictures.WORSE, pictures.WHOLE_COLOUR)
    assert min(contrast(bar, behind) for bar in bars) >= LEAST_CONTRAST_OF_BARS


needs_chromium = pytest.mark.skipif(browser.program() is None, reason="chromium is not installed")
CONTRASTS = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const behind = (e) => {
    const c = parts(getComputedStyle(e).backgroundColor);
    return c.length === 3 || c[3] === 1 ? c : behind(e.parentElement);
  };
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll("body *")].filter((e) => !e.closest("svg") && own(e)).map((e) => {
    const [low, high] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
})()"""
"""Of each element with text of its own and the first opaque colour behind it."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Tab]:
    """One browser for all pages."""
    with browser.opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


@needs_chromium
@any_page
def test_a_browser_shows_a_page_without_a_word_of_complaint(
    name: str, tab: browser.Tab, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(html(name))
    for width, media, scheme in SCREENS:
        tab.resize(width)
        tab.prefer(media, scheme)
        tab.open(path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, (width, media)
        assert tab.evaluate("document.title") == page(name).question
        assert min(tab.evaluate(CONTRASTS)) >= LEAST_CONTRAST, (media, scheme)
        assert fetched(tab) == [path.as_uri()]
        assert complaints(tab) == []


def fetched(tab: browser.Tab) -> list[str]:
    sent = [event["params"] for event in tab.events if event["method"] == "Network.requestWillBeSent"]
    return [found["request"]["url"] for found in sent if not found["request"]["url"].startswith("data:")]


def complaints(tab: browser.Tab) -> list[str]:
    kinds = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed"}
    return [str(event) for event in tab.events if event["method"] in kinds]


@needs_chromium
def test_a_browser_that_finds_fault_says_so(tab: browser.Tab, tmp_path: Path) -> None:
    """The checks above can fail: each fault, put into a page, is found."""
    path = tmp_path / "page.html"
    faults = '<img src="missing.png"><script>console.error("x")</script><p style="width: 50rem">wide</p>'
    faults += '<p style="color: #999">pale</p>'
    path.write_text(html("investments").replace("</main>", f"{faults}</main>"))
    tab.resize(390)
    tab.prefer()
    tab.open(path)
    assert tab.evaluate("document.documentElement.scrollWidth") > 390
    assert fetched(tab) == [path.as_uri(), (tmp_path / "missing.png").as_uri()]
    assert len(complaints(tab)) >= 2
    assert min(tab.evaluate(CONTRASTS)) < LEAST_CONTRAST


@needs_chromium
def test_a_long_table_scrolls_by_itself_and_is_printed_whole(tab: browser.Tab, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html("sweep"))
    hidden = (
        "(() => { const e = document.querySelector('.long'); return e.scrollHeight - e.clientHeight; })()"
    )
    for media, scrolls in (("", True), ("print", False)):
        tab.prefer(media)
        tab.open(path)
        assert (tab.evaluate(hidden) > 0) == scrolls


@needs_chromium
def test_pictures_take_the_ink_of_the_page(tab: browser.Tab, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html("run"))
    ink = (
        "getComputedStyle(document.querySelector('#throughput-xtick_1 path, #throughput-xtick_1 use')).stroke"
    )
    for scheme, colour in (("light", "rgb(27, 28, 29)"), ("dark", "rgb(233, 235, 238)")):
        tab.prefer(scheme=scheme)
        tab.open(path)
        assert tab.evaluate("getComputedStyle(document.body).color") == colour
        assert tab.evaluate(ink) == colour
