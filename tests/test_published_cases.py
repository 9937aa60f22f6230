"""The shipped cases: complete, sourced, and named in words that the catalog knows."""

import csv
from pathlib import Path

import pytest

from hwmodels import catalog
from hwmodels.catalog import Kind

FILE = Path(__file__).resolve().parent.parent / "validation" / "cases.csv"
with FILE.open(newline="") as stream:
    CASES = list(csv.DictReader(stream))
NUMBERS = (
    *("n_gpu", "block_size", "num_draft_tokens", "tree_budget", "topk", "verify_M_per_req"),
    *("concurrency", "temperature", "acceptance_length", "tok_s_total", "baseline_tok_s_total"),
)


def known(kind: Kind, text: str) -> list[str]:
    """Entries of *kind* one of whose aliases is in *text*."""
    entries = [catalog.find(name)[1] for name in catalog.names(kind)]
    return [entry.name for entry in entries if any(alias in text.lower() for alias in entry.aliases)]


def test_ids_are_unique() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) > 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_case_is_sourced_and_named_in_known_words(case: dict[str, str]) -> None:
    assert len(case["source"]) > 10
    assert not case["source"].startswith("/")
    assert known(Kind.GPU, case["gpu"])
    assert known(Kind.MODEL, case["model"])
    assert known(Kind.STACK, case["engine"])
    assert (
        not case["interconnect"]
        or case["interconnect"] == "none"
        or known(Kind.INTERCONNECT, case["interconnect"])
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_figures_of_a_case_are_possible(case: dict[str, str]) -> None:
    figures = {column: float(case[column]) for column in NUMBERS if case[column]}
    assert all(figure >= 0 for figure in figures.values())
    assert "tok_s_total" in figures or "baseline_tok_s_total" in figures
    length, most = figures.get("acceptance_length", 1.0), figures.get("verify_M_per_req", 1.0)
    assert 1 <= length <= most or length == 1
