"""Rows as scenarios: what each column becomes, and that nothing measured enters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import DRAFTED, PLAIN, cases

from sim.choices import Shape
from sim.validation.cases import Case
from sim.validation.errors import Unpredictable
from sim.validation.translation import CaseKind, Method, measured, method_of, question


@pytest.fixture
def plain(tmp_path: Path) -> Case:
    return cases(tmp_path, [PLAIN])[0]


@pytest.fixture
def drafted(tmp_path: Path) -> Case:
    return cases(tmp_path, [DRAFTED])[0]


def test_a_plain_row_is_plain_decoding(plain: Case) -> None:
    asked = question(plain, CaseKind.BASELINE)
    scenario = asked.scenario
    assert scenario.is_plain
    assert (scenario.gpu, scenario.gpus, scenario.stack) == ("b200_sxm", 1, "sglang")
    assert (scenario.load.context_tokens, scenario.load.output_tokens, scenario.load.concurrency) == (
        1024,
        1024,
        1,
    )
    assert (asked.measured_tok_s, asked.acceptance_length) == (230, 1)
    assert asked.system == "1x b200_sxm, sglang"
    assert any("host" in note for note in asked.notes)


def test_a_drafted_row_has_two_measurements(plain: Case, drafted: Case) -> None:
    both = {kind: measured(drafted, kind) for kind in CaseKind}
    assert both == {CaseKind.BASELINE: 231, CaseKind.SPECULATIVE: 1175}
    assert {kind: measured(plain, kind) for kind in CaseKind} == {
        CaseKind.BASELINE: 230,
        CaseKind.SPECULATIVE: None,
    }
    assert question(drafted, CaseKind.BASELINE).scenario.is_plain


def test_a_chain_of_m_tokens_drafts_one_less(drafted: Case) -> None:
    scenario = question(drafted, CaseKind.SPECULATIVE).scenario
    assert (scenario.drafter.model, scenario.drafter.block) == ("qwen3_8b_dflash", 16)
    assert (scenario.tree.shape, scenario.tree.budget, scenario.verify_tokens) == (Shape.CHAIN, 15, 16)
    assert scenario.acceptance.mean_length == 8.01


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_nothing_measured_enters_a_scenario(first: float, second: float) -> None:
    case = Case(line=2, **_cells())
    faster = replace(case, tok_s_total=first, baseline_tok_s_total=second)
    for kind in CaseKind:
        assert question(faster, kind).scenario == question(case, kind).scenario


def _cells() -> dict[str, object]:  # a row as the reader leaves it
    blank: dict[str, object] = dict.fromkeys(
        ("tree_budget", "topk", "num_draft_tokens", "temperature", "baseline_tok_s_total"), None
    )
    texts = {name: DRAFTED.get(name, "") for name in ("kv_dtype", "notes", *DRAFTED)}
    numbers = {"n_gpu": 1, "block_size": 16, "verify_M_per_req": 16, "concurrency": 1}
    return texts | blank | numbers | {"acceptance_length": 8.01, "tok_s_total": 1175.0}


def tree(case: Case, **changes: object) -> tuple[int, int]:
    """Block and nodes of *case* with *changes*."""
    blank = dict.fromkeys(("block_size", "num_draft_tokens", "tree_budget", "verify_M_per_req"))
    changed = replace(case, acceptance_length=2.0, **{**blank, **changes})  # type: ignore[arg-type]
    scenario = question(changed, CaseKind.SPECULATIVE).scenario
    return scenario.drafter.block, scenario.tree.budget


def test_drafted_tokens_are_read_from_whichever_column_has_them(drafted: Case) -> None:
    assert tree(drafted, verify_M_per_req=8) == (8, 7)
    assert tree(drafted, num_draft_tokens=7) == (8, 7)
    assert tree(drafted, block_size=8) == (8, 7)
    assert tree(drafted, tree_budget=7) == (8, 7)
    # SGLang's num_draft_tokens counts the root where it equals M.
    assert tree(drafted, num_draft_tokens=4, verify_M_per_req=4) == (4, 3)
    assert tree(drafted, method="DDTree", block_size=16, tree_budget=22) == (16, 22)
    with pytest.raises(Unpredictable, match="verify_M_per_req"):
        tree(drafted)


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("none (baseline)", Method.PLAIN),
        ("DDTree", Method.DDTREE),
        ("EAGLE3 tree", Method.EAGLE_TREE),
        ("EAGLE3 chain", Method.CHAIN),
        ("DFlash2 chain", Method.CHAIN),
        ("MTP chain", Method.CHAIN),
        ("NEXTN", Method.CHAIN),
        ("off", Method.PLAIN),
        ("no speculation", Method.PLAIN),
    ],
)
def test_methods(text: str, method: Method) -> None:
    assert method_of(text) is method


def test_several_choices_a_node_are_a_tree() -> None:
    assert method_of("EAGLE3", 1) is Method.CHAIN
    assert method_of("EAGLE3", 3) is Method.EAGLE_TREE


@pytest.mark.parametrize(("notes", "passes"), [("num_steps=5; slow", 5), ("", 3)])
def test_the_depth_of_an_eagle_tree_is_noted_or_usual(drafted: Case, notes: str, passes: int) -> None:
    grown = {"method": "EAGLE3 tree", "drafter": "EAGLE3", "topk": 4, "notes": notes, "block_size": None}
    case = replace(drafted, verify_M_per_req=16, acceptance_length=2.0, **grown)  # type: ignore[arg-type]
    asked = question(case, CaseKind.SPECULATIVE)
    tree = asked.scenario.tree
    assert (asked.scenario.drafter.block, tree.budget, tree.top_k) == (passes + 1, 15, 4)
    assert any("depth" in note for note in asked.notes) is not bool(notes)


@pytest.mark.parametrize("text", ["", "lookahead", "medusa heads"])
def test_an_unknown_method_is_said(text: str) -> None:
    with pytest.raises(Unpredictable, match="method"):
        method_of(text)


def ranks(case: Case, **changes: object) -> tuple[int, str]:
    scenario = question(replace(case, **changes), CaseKind.BASELINE).scenario  # type: ignore[arg-type]
    return scenario.gpus, scenario.interconnect


def test_the_number_of_gpus_is_stated_or_follows_from_the_parallelism(plain: Case) -> None:
    blank = {"n_gpu": None, "interconnect": "NVLink5"}
    assert ranks(plain, **blank, parallelism="TP4") == (4, "nvlink5")
    assert ranks(plain, **blank, parallelism="TP2 DCP1") == (2, "nvlink5")
    assert ranks(plain, **blank, parallelism="4 GPU") == (4, "nvlink5")
    assert ranks(plain, **blank, parallelism="", gpu="8x B200") == (8, "nvlink5")
    assert ranks(plain, **blank, parallelism="", gpu="B200 x2") == (2, "nvlink5")
    assert ranks(plain, **blank, parallelism="", gpu="4xB200") == (4, "nvlink5")
    with pytest.raises(Unpredictable, match="how many GPUs"):
        ranks(plain, **blank, parallelism="")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parallelism": "TP1 DP2"}, "data parallelism"),
        ({"parallelism": "DEP8"}, "data parallelism"),
        ({"parallelism": "PP2"}, "pipeline parallelism"),
        ({"n_gpu": 2, "parallelism": "TP1"}, "only TP over all"),
        ({"n_gpu": 3, "parallelism": ""}, "gpus must be"),
        ({"engine": "an engine nobody knows"}, "engine 'an engine nobody knows'"),
        ({"engine": ""}, "names no engine"),
        ({"gpu": "TPU v5"}, "GPU 'TPU v5'"),
        ({"model": "GPT-2"}, "model 'GPT-2'"),
        ({"kv_dtype": "q4_0"}, "kv_dtype"),
        ({"context_tokens": "somewhere near 3"}, "context_tokens"),
        ({"concurrency": 10**9}, "concurrency"),
        ({"context_tokens": "9999999999"}, "context_tokens"),
    ],
)
def test_what_nobody_knows_is_said(plain: Case, changes: dict[str, object], words: str) -> None:
    with pytest.raises(Unpredictable, match=words):
        question(replace(plain, **changes), CaseKind.BASELINE)  # type: ignore[arg-type]


def test_a_length_beyond_the_block_is_refused(drafted: Case) -> None:
    with pytest.raises(Unpredictable, match="at most 16"):
        question(replace(drafted, acceptance_length=16.5), CaseKind.SPECULATIVE)


def test_without_an_acceptance_length_only_plain_decoding_is_asked(drafted: Case) -> None:
    unstated = replace(drafted, acceptance_length=None)
    assert question(unstated, CaseKind.BASELINE).scenario.is_plain
    with pytest.raises(Unpredictable, match="acceptance_length"):
        question(unstated, CaseKind.SPECULATIVE)


def test_what_is_not_said_is_assumed_and_noted(plain: Case) -> None:
    bare = replace(plain, interconnect="", concurrency=None, parallelism="TP8", n_gpu=8, context_tokens="")
    asked = question(replace(bare, workload=""), CaseKind.BASELINE)
    assert (asked.scenario.interconnect, asked.scenario.gpus) == ("nvlink5", 8)
    for word in ("interconnect", "host", "concurrency", "bfloat16", "context"):
        assert any(word in note for note in asked.notes), word
    told = replace(plain, kv_dtype="fp8", interconnect="NVLink5 xeon")
    assert question(told, CaseKind.BASELINE).notes == ()


def test_several_gpus_are_tensor_parallel_unless_nothing_links_them(plain: Case) -> None:
    unsaid = replace(plain, n_gpu=2, parallelism="")
    linked = question(replace(unsaid, interconnect="NVLink5"), CaseKind.BASELINE)
    assert linked.scenario.gpus == 2
    assert any("TP" in note for note in linked.notes)
    apart = question(replace(unsaid, interconnect=""), CaseKind.BASELINE)
    assert apart.scenario.gpus == 1
    assert any("one of 2" in note for note in apart.notes)


def test_a_live_service_is_not_predicted(plain: Case) -> None:
    with pytest.raises(Unpredictable, match="live service"):
        question(replace(plain, workload="reasoning, live service"), CaseKind.BASELINE)
