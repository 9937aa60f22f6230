"""Pages to hand on: what they say, that nothing is fetched, and that everyone can read them."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import browser
import pytest
from builders import small_setup
from texts import GOOD

from sim.answer import Answer, answer
from sim.choices import EngineName
from sim.html import parts, run_page
from sim.html.page import Folded, Page, Paragraph, Points, Section, Table, render
from sim.scenario import Anchor

SCENARIOS = {
    "tree": (),
    "anchored": (),
    "a range": ("acceptance={mean_length: 4.4, mean_length_range: [3.5, 5]}",),
    "one run": ("runs=1",),
    "plain batch": ("tree.budget=0", "acceptance={length: 1}", "load.concurrency=4", "runs=6"),
    "one rank": ("gpus=1",),
    "two streams": ("model=kimi_k2_6_nvfp4",),
}
ANCHORS = {
    "anchored": Anchor(tok_s=303, acceptance_length=4.4, source="an article"),
    "a range": Anchor(tok_s_range=(575, 770), source="an estimate"),
}
any_scenario = pytest.mark.parametrize("name", SCENARIOS)
SCREENS = [(width, "", scheme) for width in (320, 360, 1400) for scheme in ("light", "dark")]
PAPER = (680, "print", "light")
"""A4 less its margins, in CSS pixels."""
VOID = {"meta", "link", "br", "path", "use", "image", "rect"}
LEAST_CONTRAST = 4.5
"""Of text against what lies behind it (WCAG 2, level AA)."""


@cache
def answered(name: str) -> Answer:
    setup = small_setup(*SCENARIOS[name])
    said = {"anchor": ANCHORS.get(name), "assumptions": ("The host is idle otherwise.",)}
    return answer(replace(setup, scenario=setup.scenario.model_copy(update=said)))


@cache
def page(name: str) -> Page:
    return run_page.page(answered(name))


@cache
def html(name: str) -> str:
    return render(page(name))


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


@any_scenario
def test_a_page_is_whole_and_its_ids_are_its_own(name: str) -> None:
    found = elements(name).found
    ids = Counter(attributes["id"] for _, attributes in found if "id" in attributes)
    assert max(ids.values()) == 1
    wanted = [attributes.get("href") or attributes.get("xlink:href") or "" for _, attributes in found]
    wanted += [f"#{part}" for _, a in found for part in (a.get("aria-labelledby") or "").split()]
    wanted += re.findall(r"url\((#[^)]*)\)", html(name))
    assert {each[1:] for each in wanted if each.startswith("#")} <= ids.keys()


@any_scenario
def test_a_page_names_nothing_that_would_be_fetched(name: str) -> None:
    places = ("src", "href", "xlink:href", "srcset", "data", "poster", "action")
    for tag, attributes in elements(name).found:
        assert tag not in {"script", "iframe", "object", "embed", "video", "audio", "form"}
        for place in places:
            assert (attributes.get(place) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", html(name))


@any_scenario
def test_pictures_are_told_to_those_who_do_not_see_them(name: str) -> None:
    pictures = elements(name).named("svg")
    assert len(pictures) == 4
    for attributes in pictures:
        assert attributes["role"] == "img"
        title, description = (attributes["aria-labelledby"] or "").split()
        for part, tag in ((title, "title"), (description, "desc")):
            said = re.search(rf'<{tag} id="{part}">([^<]+)</{tag}>', html(name))
            assert said is not None
            assert len(said[1].strip()) > 10


@any_scenario
def test_tables_have_heads_and_captions_and_rows_have_names(name: str) -> None:
    tables = [
        block for section in page(name).sections for block in section.blocks if isinstance(block, Table)
    ]
    assert len(elements(name).named("table")) == len(tables) >= 4
    for table in tables:
        assert table.caption
        assert all(len(row) == len(table.head) for row in table.rows)
        assert table.rows
    scopes = Counter(attributes["scope"] for attributes in elements(name).named("th"))
    assert scopes == {"col": sum(len(t.head) for t in tables), "row": sum(len(t.rows) for t in tables)}


@any_scenario
def test_headings_follow_one_another(name: str) -> None:
    levels = [int(tag[1]) for tag, _ in elements(name).found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert set(levels[1:]) == {2}
    (root,) = elements(name).named("html")
    assert root["lang"] == "en"


@any_scenario
def test_the_answer_is_two_sentences_with_the_numbers_of_the_run(name: str) -> None:
    summary, said = answered(name).summary, page(name).answer
    assert len(said) == 2
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in said)
    assert f"{summary.throughput_tok_s.mean:.1f}" in said[0].replace(",", "")
    first = next(iter(summary.components))
    assert f"{100 * summary.components[first]:.1f} % for {first.value}" in said[1]


def test_what_was_published_stands_beside_the_prediction() -> None:
    compared = answered("anchored").comparison
    assert compared is not None
    words = " ".join(elements("anchored").words)
    assert "Published: an article." in words
    assert f"303 {compared.predicted_tok_s:.1f} {100 * compared.error:+.1f} %" in " ".join(words.split())
    assert "The host is idle otherwise." in words
    assert "Published beside predicted" not in html("tree")
    assert "from the middle" in html("a range")


def test_figures_come_in_the_order_in_which_they_move_the_step() -> None:
    (section,) = (section for section in page("tree").sections if section.anchor == "figures")
    table = section.blocks[1]
    assert isinstance(table, Table)
    moves = [float(row[1].removesuffix(" %")) for row in table.rows]
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > 0
    assert all(row[6] for row in table.rows)


def test_the_timeline_is_of_the_step_nearest_to_the_median() -> None:
    found = answered("tree")
    step = run_page.middling_step(found)
    recorded = found.experiment.in_full[0].steps.step_ns.tolist()
    assert step.step_ns == recorded[step.index]
    median = statistics.median(found.experiment.step_ns.tolist())
    assert abs(step.step_ns - median) == min(abs(each - median) for each in recorded)
    assert f"Timeline of step {step.index} of run 0" in html("tree")


def test_text_is_text_whatever_it_holds() -> None:
    nasty = '</title><script>alert("x")</script> & <b>'
    blocks = [Paragraph(nasty), Points([nasty]), Folded(nasty, nasty), Table(nasty, [nasty], [[nasty]])]
    shown = render(Page(nasty, [nasty], [nasty], [Section("a", nasty, blocks)]))
    assert "<script" not in shown
    assert Elements(shown).words.count(nasty) >= 10


def test_a_page_names_files_but_no_folders_of_this_machine() -> None:
    found = {"a": "/home/me/runs.csv", "b": ["/x/y.yaml", "x/y", 3, None], "c": {"d": "tokens/s"}}
    assert parts.without_folders(found) == {
        "a": "runs.csv",
        "b": ["y.yaml", "x/y", 3, None],
        "c": {"d": "tokens/s"},
    }


def test_engines_and_repetition_leave_the_same_page() -> None:
    assert render(run_page.page(answered("tree"))) == html("tree")
    by_simpy = answer(answered("tree").setup, EngineName.SIMPY)
    same = replace(by_simpy, engine=EngineName.BATCH, replayed=answered("tree").replayed)
    assert render(run_page.page(same)) == html("tree")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["page", "panel"])
@pytest.mark.parametrize("text", ["ink", "soft", "accent"])
def test_text_stands_out_from_what_lies_behind_it(scheme: int, behind: str, text: str) -> None:
    style = (resources.files("sim.html") / "templates/style.css").read_text()
    colours = [dict(re.findall(r"--(\w+): (#\w{6});", part)) for part in style.split(":root {")[1:3]]
    low, high = sorted(luminance(colours[scheme][each]) for each in (text, behind))
    assert (high + 0.05) / (low + 0.05) >= LEAST_CONTRAST


needs_chromium = pytest.mark.skipif(browser.program() is None, reason="chromium is not installed")


@needs_chromium
@any_scenario
def test_a_browser_shows_a_page_without_a_word_of_complaint(name: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html(name))
    with browser.opened(tmp_path / "profile") as tab:
        for width, media, scheme in [*SCREENS, PAPER]:
            tab.resize(width)
            tab.prefer(media, scheme)
            tab.open(path)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, (width, media)
            assert tab.evaluate("document.title") == page(name).question
            assert fetched(tab) == [path.as_uri()]
            assert complaints(tab) == []


def fetched(tab: browser.Tab) -> list[str]:
    sent = [event["params"] for event in tab.events if event["method"] == "Network.requestWillBeSent"]
    return [found["request"]["url"] for found in sent if not found["request"]["url"].startswith("data:")]


def complaints(tab: browser.Tab) -> list[str]:
    kinds = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed"}
    return [str(event) for event in tab.events if event["method"] in kinds]


@needs_chromium
def test_a_browser_that_finds_fault_says_so(tmp_path: Path) -> None:
    """The checks above can fail: each fault, put into a page, is found."""
    path = tmp_path / "page.html"
    faults = '<img src="missing.png"><script>console.error("x")</script><p style="width: 50rem">wide</p>'
    path.write_text(html("tree").replace("</main>", f"{faults}</main>"))
    with browser.opened(tmp_path / "profile") as tab:
        tab.resize(360)
        tab.open(path)
        assert tab.evaluate("document.documentElement.scrollWidth") > 360
        assert fetched(tab) == [path.as_uri(), (tmp_path / "missing.png").as_uri()]
        assert len(complaints(tab)) >= 2


@needs_chromium
def test_pictures_take_the_ink_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html("tree"))
    ink = (
        "getComputedStyle(document.querySelector('#throughput-xtick_1 path, #throughput-xtick_1 use')).stroke"
    )
    with browser.opened(tmp_path / "profile") as tab:
        for scheme, colour in (("light", "rgb(27, 28, 29)"), ("dark", "rgb(233, 235, 238)")):
            tab.prefer(scheme=scheme)
            tab.open(path)
            assert tab.evaluate("getComputedStyle(document.body).color") == colour
            assert tab.evaluate(ink) == colour


def test_the_command_writes_a_page_and_refuses_what_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(GOOD)
    command = [sys.executable, "-m", "sim", "run", "small.yaml"]
    done = subprocess.run(
        [*command, "--html", "there/page.html"], cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Report to hand on: there/page.html" in done.stdout
    assert "A scenario that is right in every line?" in (tmp_path / "there/page.html").read_text()
    (tmp_path / "a_file").write_text("")
    for name, problem in (
        ("page.pdf", "page.pdf: expected a name that ends in .html or .htm"),
        ("there", "there: expected a name"),
        ("a_file/page.html", "a_file is a file, not a folder"),
    ):
        refused = subprocess.run(
            [*command, "--runs", "1000000", "--html", name],
            cwd=tmp_path,
            text=True,
            capture_output=True,
            check=False,
        )
        assert refused.returncode == 2
        assert problem in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
