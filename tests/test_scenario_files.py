"""What a wrong scenario file is told, word for word."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import GOOD, scenario_from

from hwmodels import catalog
from hwmodels.documents import parse
from hwmodels.errors import DocumentError, HardwareError
from sim import shipped
from sim.article import noiseless_step
from sim.errors import ScenarioError
from sim.scenario import Scenario, as_file_in, load
from sim.setup import resolve
from sim.step import decode_step

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


BAD = {
    "unknown key": (
        changed("budget: 8", "bugdet: 8"),
        "bad.yaml:9: tree.bugdet: unknown key, did you mean 'budget'?",
    ),
    "unknown top-level key": (
        GOOD + "gpuz: 8\n",
        "bad.yaml:16: gpuz: unknown key, did you mean 'gpu'?",
    ),
    "unknown key, nothing near": (
        changed("  budget: 8", "  budget: 8\n  zzz: 1"),
        "bad.yaml:10: tree.zzz: unknown key (known: budget, builder, shape, top_k, workers)",
    ),
    "an uncertain key that is none": (
        GOOD + "uncertain:\n  tree.bilder: {choice: [host, gpu]}\n",
        "bad.yaml:17: uncertain.tree.bilder: no scenario key, no figure of an entry it names,"
        " and no work.<family>, did you mean 'tree.builder'?",
    ),
    "an uncertain figure that is none": (
        GOOD + "uncertain:\n  gpu.kernel_flor_us: {normal: [2, 0.1]}\n",
        "bad.yaml:17: uncertain.gpu.kernel_flor_us: no scenario key, no figure of an entry it names,"
        " and no work.<family>, did you mean 'gpu.kernel_floor_us'?",
    ),
    "an uncertain family of work that is none": (
        GOOD + "uncertain:\n  work.routed_expert: {normal: [1, 0.1]}\n",
        "bad.yaml:17: uncertain.work.routed_expert: no scenario key, no figure of an entry it names,"
        " and no work.<family>, did you mean 'work.routed_experts'?",
    ),
    "an uncertain name": (
        GOOD + "uncertain:\n  gpu: {choice: [b300_sxm, b200_sxm]}\n",
        "bad.yaml:17: uncertain.gpu: names a catalog entry, whose figures may be uncertain,"
        " but not which it is",
    ),
    "uncertain luck": (
        GOOD + "uncertain:\n  gpu.noise.rank_cv: {from: range}\n",
        "bad.yaml:17: uncertain.gpu.noise.rank_cv: is the size of luck, which is drawn anew in every step as"
        " it is",
    ),
    "an unknown distribution": (
        GOOD + "uncertain:\n  tree.budget:\n    unifrom: [4, 8]\n",
        "bad.yaml:18: uncertain.tree.budget.unifrom: unknown key, did you mean 'uniform'?",
    ),
    "two distributions": (
        GOOD + "uncertain:\n  tree.budget: {uniform: [4, 8], choice: [4]}\n",
        "bad.yaml:17: uncertain.tree.budget: give exactly one of uniform, normal, lognormal, choice, from;"
        " got uniform and choice",
    ),
    "a uniform that falls": (
        GOOD + "uncertain:\n  tree.budget: {uniform: [8, 4]}\n",
        "bad.yaml:17: uncertain.tree.budget: uniform must not fall, got [8.0, 4.0]",
    ),
    "a standard deviation of nothing": (
        GOOD + "uncertain:\n  gpu.kernel_floor_us: {normal: [2, 0]}\n",
        "bad.yaml:17: uncertain.gpu.kernel_floor_us: normal needs a standard deviation above 0, got 0",
    ),
    "a lognormal below 0": (
        GOOD + "uncertain:\n  gpu.kernel_floor_us: {lognormal: [-2, 0.1]}\n",
        "bad.yaml:17: uncertain.gpu.kernel_floor_us: lognormal needs a median and a spread above 0, got"
        " [-2.0, 0.1]",
    ),
    "a figure that may be negative": (
        GOOD + "uncertain:\n  gpu.kernel_floor_us: {normal: [2, 1]}\n",
        "bad.yaml:17: uncertain.gpu.kernel_floor_us: may not be drawn as -2.753; a lognormal stays above 0",
    ),
    "a figure of words": (
        GOOD + "uncertain:\n  gpu.kernel_floor_us: {choice: [2.0, low]}\n",
        "bad.yaml:17: uncertain.gpu.kernel_floor_us: needs numbers, got [2.0, 'low']",
    ),
    "a value that no scenario has": (
        GOOD + "uncertain:\n  tree.builder: {choice: [host, fpga]}\n",
        "bad.yaml:17: uncertain.tree.builder: tree.builder: Input should be 'host' or 'gpu'",
    ),
    "a length beyond the block": (
        GOOD + "uncertain:\n  acceptance.mean_length: {uniform: [4, 9]}\n",
        "bad.yaml:17: uncertain.acceptance.mean_length: acceptance asks for 9 tokens per step, but block 8,"
        " budget 8 allow at most 8",
    ),
    "no range to draw from": (
        GOOD + "uncertain:\n  stack.dispatch.graph_launch_fixed_us: {from: range}\n",
        "bad.yaml:17: uncertain.stack.dispatch.graph_launch_fixed_us: has no range; from: fit takes what its"
        " source leaves open",
    ),
    "a scenario key that states nothing itself": (
        GOOD + "uncertain:\n  tree.budget: {from: fit}\n",
        "bad.yaml:17: uncertain.tree.budget: from: fit is what figures state; a scenario key needs a"
        " distribution",
    ),
    "text for a number": (
        changed("budget: 8", "budget: '8'"),
        'bad.yaml:9: tree.budget: expected integer, got "8"',
    ),
    "fraction for an integer": (
        changed("budget: 8", "budget: 8.5"),
        "bad.yaml:9: tree.budget: expected integer, got 8.5",
    ),
    "boolean for an integer": (
        changed("budget: 8", "budget: true"),
        "bad.yaml:9: tree.budget: expected integer, got true",
    ),
    "list for a mapping": (
        changed("tree:\n  budget: 8", "tree: [8]"),
        "bad.yaml:8: tree: expected a mapping of keys to values, got [8]",
    ),
    "missing key": (
        changed("  context_tokens: 2000\n", ""),
        "bad.yaml:12: load.context_tokens: missing, and it has no default",
    ),
    "missing section": (
        changed("gpu: b300_sxm\n", ""),
        "bad.yaml: gpu: missing, and it has no default",
    ),
    "duplicate key": (
        changed("  budget: 8", "  budget: 8\n  budget: 9"),
        "bad.yaml:10: tree.budget: key given twice",
    ),
    "NaN": (
        changed("mean_length: 4.4", "mean_length: .nan"),
        "bad.yaml:11: acceptance.mean_length: must be a finite number, got .nan",
    ),
    "infinity": (
        changed("mean_length: 4.4", "mean_length: .inf"),
        "bad.yaml:11: acceptance.mean_length: must be a finite number, got .inf",
    ),
    "a number too large for a float": (
        changed("mean_length: 4.4", "mean_length: 1e999"),
        "bad.yaml:11: acceptance.mean_length: must be a finite number, got 1e999",
    ),
    "negative": (
        changed("budget: 8", "budget: -1"),
        "bad.yaml:9: tree.budget: expected greater than or equal to 0, got -1",
    ),
    "zero GPUs": (
        GOOD + "gpus: 0\n",
        "bad.yaml:16: gpus: expected greater than or equal to 1, got 0",
    ),
    "three GPUs": (
        GOOD + "gpus: 3\n",
        "bad.yaml: gpus must be 1, 2, 4 or 8, got 3",
    ),
    "a budget of 10^9": (
        changed("budget: 8", "budget: 1000000000"),
        "bad.yaml:9: tree.budget: expected less than or equal to 4096, got 1000000000",
    ),
    "more than the block": (
        changed("mean_length: 4.4", "mean_length: 9"),
        "bad.yaml: acceptance asks for 9 tokens per step, but block 8, budget 8 allow at most 8",
    ),
    "more than the budget": (
        changed("budget: 8", "budget: 2"),
        "bad.yaml: acceptance asks for 4.4 tokens per step, but block 8, budget 2 allow at most 3",
    ),
    "two kinds of acceptance": (
        changed("mean_length: 4.4", "mean_length: 4.4\n  length: 4"),
        "bad.yaml:10: acceptance: give exactly one of length, rates, hazard, mean_length, quality,"
        " trace; got length and mean_length",
    ),
    "no kind of acceptance": (
        changed("mean_length: 4.4", "step_correlation: 0.2"),
        "bad.yaml:10: acceptance: give exactly one of length, rates, hazard, mean_length, quality, trace;"
        " got none",
    ),
    "rates for another block": (
        changed("mean_length: 4.4", "rates: [0.9, 0.8]"),
        "bad.yaml: acceptance has 2 positions for a block of 8 (needs 7)",
    ),
    "rising rates": (
        changed("mean_length: 4.4", "rates: [0.5, 0.6, 0.1, 0.1, 0.1, 0.1, 0.1]"),
        "bad.yaml:10: acceptance: unconditional rates cannot rise, got"
        " [0.5, 0.6, 0.1, 0.1, 0.1, 0.1, 0.1]; conditional ones go into hazard",
    ),
    "a rate above one": (
        changed("mean_length: 4.4", "hazard: 1.5"),
        "bad.yaml:10: acceptance: hazard must lie in [0, 1], got [1.5]",
    ),
    "a range that misses the mean": (
        changed("mean_length: 4.4", "mean_length: 4.4\n  mean_length_range: [5, 6]"),
        "bad.yaml:10: acceptance: mean_length_range [5.0, 6.0] must start at 1 or more"
        " and hold mean_length 4.4",
    ),
    "wrong choice": (
        changed("budget: 8", "budget: 8\n  builder: gpus"),
        "bad.yaml:10: tree.builder: expected 'host' or 'gpu', got \"gpus\", did you mean 'gpu'?",
    ),
    "unknown GPU": (
        changed("b300_sxm", "b30_sxm"),
        "bad.yaml:2: gpu: no gpu named 'b30_sxm', did you mean 'b300_sxm'?",
    ),
    "unknown drafter": (
        changed("  block: 8", "  block: 8\n  model: kimi_dflesh"),
        "bad.yaml:8: drafter.model: no drafter named 'kimi_dflesh', did you mean 'kimi_dflash'?",
    ),
    "empty file": ("", "bad.yaml: empty file"),
    "only a comment": ("# nothing\n", "bad.yaml: empty file"),
    "a list": ("- a\n", "bad.yaml:1: expected a mapping of keys to values"),
    "broken YAML": (
        "tree: [1, 2\n",
        "bad.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'",
    ),
    "a tag": (
        changed("budget: 8", "budget: !!python/object:os.system 8"),
        "bad.yaml:9: tree.budget: tags such as tag:yaml.org,2002:python/object:os.system are not allowed",
    ),
    "a tag on a mapping": (
        changed("tree:\n", "tree: !tree\n"),
        "bad.yaml:8: tree: tags such as !tree are not allowed",
    ),
    "a tag that is no number": (
        changed("budget: 8", "budget: !!int ''"),
        "bad.yaml: not valid YAML: string index out of range",
    ),
    "a directive": ("%YAML 1.1\n---\n" + GOOD, "bad.yaml:1: YAML directives are not allowed"),
    "an anchor given twice": (
        GOOD + "model: &a x\nkv: &a {}\n",
        "bad.yaml: not valid YAML: an anchor is defined twice",
    ),
    "half a character": (
        changed("question: A", 'question: "\\ud800" #'),
        "bad.yaml:1: question: not valid Unicode text",
    ),
    "an alias bomb": (BOMB, "more than 10,000 values (aliases that multiply?)"),
    "deep nesting": ("a: " + "[" * 60 + "]" * 60, "nested deeper than 40 levels"),
    "extends a missing file": (
        "extends: nowhere.yaml\n",
        "bad.yaml:1: extends: no such file: nowhere.yaml (known: " + ", ".join(shipped.names()) + ")",
    ),
    "extends something like a shipped name": (
        "extends: b300_nov\n",
        "bad.yaml:1: extends: no such file: b300_nov, did you mean 'b300_now'?",
    ),
    "extends itself": ("extends: bad.yaml\n", "bad.yaml:1: extends: goes in a circle: bad.yaml -> bad.yaml"),
    "extends a number": ("extends: 7\n", "bad.yaml:1: extends: expected a file name, got 7"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_gets_its_message(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, message = BAD[name]
    monkeypatch.chdir(tmp_path)
    path = Path("bad.yaml")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    said = str(caught.value)
    assert said.startswith("bad.yaml")
    assert said == message if message.startswith("bad.yaml") else said.endswith(message)


def test_circle_through_other_files(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}.yaml\n")
    with pytest.raises(ScenarioError, match=r"circle: a.yaml -> b.yaml -> c.yaml -> a.yaml"):
        load(tmp_path / "a.yaml")


def test_an_inherited_error_names_the_file_it_stands_in(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(changed("budget: 8", "budget: -1"))
    (tmp_path / "child.yaml").write_text("question: A child of it?\nextends: base.yaml\n")
    with pytest.raises(ScenarioError, match=r"base\.yaml:9: tree\.budget"):
        load(tmp_path / "child.yaml")


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file"):
        load(tmp_path / "nowhere.yaml")
    with pytest.raises(ScenarioError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load(tmp_path / "bytes.yaml")


def test_extends_merges_and_null_takes_away(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD + "anchor: {tok_s: 300, source: somewhere}\n")
    child_text = "question: And now a child?\nextends: base.yaml\ntree: {budget: 5}\nruns: null\n"
    (tmp_path / "child.yaml").write_text(child_text)
    base, child = load(tmp_path / "base.yaml"), load(tmp_path / "child.yaml")
    assert child.tree.budget == 5
    assert child.drafter == base.drafter
    assert (base.runs, child.runs) == (5, 256)


def test_question_anchor_and_assumptions_are_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        GOOD + "anchor: {tok_s: 300, source: somewhere}\nassumptions: [true of the base]\n"
    )
    (tmp_path / "child.yaml").write_text("extends: base.yaml\n")
    with pytest.raises(ScenarioError, match=r"child\.yaml: question: missing"):
        load(tmp_path / "child.yaml")
    (tmp_path / "child.yaml").write_text("extends: base.yaml\nquestion: And now a child?\n")
    child = load(tmp_path / "child.yaml")
    assert (child.anchor, child.assumptions) == (None, ())


def test_another_distribution_replaces_the_inherited_one_and_null_takes_it_away(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        GOOD + "uncertain: {gpu.kernel_floor_us: {from: range}, tree.budget: {choice: [4, 8]}}\n"
    )
    (tmp_path / "child.yaml").write_text(
        "extends: base.yaml\nquestion: And now a child?\n"
        "uncertain: {gpu.kernel_floor_us: {lognormal: [2, 0.1]}, tree.budget: null}\n"
    )
    stated = load(tmp_path / "child.yaml").uncertain
    assert list(stated) == ["gpu.kernel_floor_us"]
    assert stated["gpu.kernel_floor_us"].lognormal == (2, 0.1)
    changed_again = load(tmp_path / "child.yaml", ("uncertain.gpu.kernel_floor_us={uniform: [2, 3]}",))
    assert changed_again.uncertain["gpu.kernel_floor_us"].uniform == (2, 3)


def test_a_scenario_with_distributions_is_written_and_read_as_it_is() -> None:
    found = scenario_from(
        GOOD, "uncertain={tree.builder: {choice: [host, gpu]}, work.tree_build: {from: fit}}"
    )
    again = Scenario.model_validate_json(found.model_dump_json())
    assert again == found
    assert hash(again) == hash(found) != hash(scenario_from(GOOD))


def test_a_shipped_scenario_can_be_extended_from_anywhere(tmp_path: Path) -> None:
    for base in ("b300_now", "b300_now.yaml"):
        (tmp_path / "child.yaml").write_text(f"extends: {base}\nquestion: What of it?\n")
        assert load(tmp_path / "child.yaml").gpu == "b300_sxm"


def test_another_kind_of_acceptance_replaces_the_inherited_one(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(GOOD)
    (tmp_path / "child.yaml").write_text(
        "extends: base.yaml\nquestion: And now?!!!\nacceptance: {hazard: 0.5}\n"
    )
    given = load(tmp_path / "child.yaml").acceptance
    assert (given.hazard, given.mean_length) == (0.5, None)


def test_a_catalog_entry_may_be_a_file_beside_the_scenario(tmp_path: Path) -> None:
    gpu = (catalog.DATA / "gpus/b300_sxm.yaml").read_text().replace("name: b300_sxm", "name: my_b300")
    (tmp_path / "my_gpu.yaml").write_text(gpu)
    (tmp_path / "mine.yaml").write_text(changed("gpu: b300_sxm", "gpu: my_gpu.yaml"))
    setup = resolve(load(tmp_path / "mine.yaml"))
    assert setup.machine.gpu.name == "my_b300"
    assert decode_step(setup).ops


def test_a_gpu_file_may_extend_a_catalog_entry_and_what_it_changes_counts(tmp_path: Path) -> None:
    faster = "{value: 12000, source: assumed, ref: twice as fast, range: null}"
    (tmp_path / "my_gpu.yaml").write_text(
        f"extends: b300_sxm\nname: b400\nachieved_bandwidth_gb_s: {faster}\n"
        "memory_bandwidth_gb_s: {value: 15000, range: null}\n"
    )
    (tmp_path / "mine.yaml").write_text(changed("gpu: b300_sxm", "gpu: my_gpu.yaml"))
    mine, shipped_gpu = resolve(load(tmp_path / "mine.yaml")), resolve(scenario_from(GOOD))
    assert noiseless_step(mine).total_ms < noiseless_step(shipped_gpu).total_ms
    assert noiseless_step(mine).experts_ms < 0.7 * noiseless_step(shipped_gpu).experts_ms


def test_a_catalog_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(changed("  block: 8", "  block: 8\n  model: mine_too.yaml"))
    with pytest.raises(ScenarioError, match=r"mine.yaml:8: drafter.model: no such file: .*mine_too.yaml"):
        load(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tree.budget", "expected key=value, such as tree.budget=16"),
        ("tree.bugdet=9", "--set tree.bugdet=9: tree.bugdet: unknown key, did you mean 'budget'?"),
        ("tree.budget=many", '--set tree.budget=many: tree.budget: expected integer, got "many"'),
        ("gpu=b30_sxm", "--set gpu=b30_sxm: gpu: no gpu named 'b30_sxm', did you mean 'b300_sxm'?"),
        (
            "gpu=my.jsonl",
            "'my.jsonl' holds measurements; name a GPU's .yaml file that says 'measured: my.jsonl'",
        ),
        ("tree.budget=[", "--set tree.budget=[:1: not valid YAML"),
        ("=3", "expected key=value"),
    ],
)
def test_bad_override_gets_its_message(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_from(GOOD, override)
    assert message in str(caught.value)


def test_overrides_edit_before_validation() -> None:
    found = scenario_from(GOOD, "tree.budget=16", "acceptance.hazard=0.9", "load.context_tokens=1000")
    assert (found.tree.budget, found.acceptance.hazard, found.load.context_tokens) == (16, 0.9, 1000)


@given(st.text(max_size=200))
def test_no_text_makes_the_loader_fall_over(text: str) -> None:
    with contextlib.suppress(ScenarioError):
        assert isinstance(scenario_from(text), Scenario)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "tree.budget": st.integers(-2, 5000),
            "drafter.block": st.integers(-2, 300),
            "gpus": st.integers(-1, 9),
            "load.context_tokens": st.integers(-1, 2_000_000),
            "acceptance.mean_length": st.floats(0, 20),
            "gpu": st.sampled_from(["b300_sxm", "h200_sxm", "rtx_pro_6000_server", "none"]),
            "stack": st.sampled_from(["sglang", "vllm", "native", "none"]),
            "interconnect": st.sampled_from(["nvlink4", "nvlink5", "pcie5_nccl", "none"]),
        },
    )
)
def test_any_overrides_load_or_are_refused(values: dict[str, object]) -> None:
    overrides = [f"{key}={value}" for key, value in values.items()]
    try:
        setup = resolve(scenario_from(GOOD, *overrides))
    except (DocumentError, HardwareError):
        return
    if setup.scenario.tree.budget <= 64:
        try:
            costs = [setup.costs.estimate(work) for work in decode_step(setup).works]
        except HardwareError:
            return
        assert all(cost.seconds >= 0 for cost in costs)


MAPPINGS: dict[str, tuple[dict[str, object], ...]] = {
    "acceptance": (
        {"mean_length": 5},
        {"length": 4},
        {"hazard": 0.8, "request_sd": 0.3, "step_correlation": 0.2},
        {"quality": {"mean_length": 4.4}, "mean_length_range": [4, 5], "decay_per_1k_context": 0.1},
    ),
    "tree": ({"budget": 8}, {"budget": 7, "shape": "chain"}, {"budget": 16, "builder": "gpu"}),
    "drafter": ({"block": 8}, {"block": 16, "model": "kimi_dflash_block16"}),
    "load": (
        {"context_tokens": 100, "output_tokens": 40},
        {"context_tokens": 9, "output_tokens": 8, "concurrency": 3, "prefill": True},
    ),
    "kv": ({"dtype": "fp8"}, {"memory_fraction": 0.8}),
    "experts": ({"routing_correlation": 0.2}, {"kernel": "trtllm_gen"}),
    "uncertain": (
        {"tree.builder": {"choice": ["host", "gpu"]}},
        {"work.routed_experts": {"lognormal": [1.1, 0.1]}, "stack.dispatch.schedule_us": {"from": "range"}},
    ),
}


@given(st.sampled_from(sorted(MAPPINGS)), st.data())
def test_a_mapping_that_is_set_replaces_the_whole_mapping(key: str, data: st.DataObject) -> None:
    """It is as if the file had said it, whatever the file said there: nothing of that is left to mix with."""
    said, asked = data.draw(st.sampled_from(MAPPINGS[key])), data.draw(st.sampled_from(MAPPINGS[key]))
    whole: dict[str, object] = parse(GOOD, "good").data
    files = [json.dumps({**whole, key: value}) for value in (said, asked)]
    assert scenario_from(files[0], f"{key}={json.dumps(asked)}") == scenario_from(files[1])


def test_a_key_inside_a_mapping_that_is_set_leaves_the_others() -> None:
    text = GOOD.replace("  mean_length: 4.4", "  quality: {mean_length: 4.4, block: 8, budget: 8}")
    found = scenario_from(text, "acceptance.quality.mean_length=5", "load.concurrency=2")
    assert found.acceptance.quality is not None
    assert (found.acceptance.quality.mean_length, found.acceptance.quality.budget) == (5, 8)
    assert (found.load.concurrency, found.load.output_tokens) == (2, 40)


def test_what_a_mapping_that_is_set_lacks_is_missing() -> None:
    with pytest.raises(ScenarioError, match=r"--set load=.*: load.context_tokens: missing"):
        scenario_from(GOOD, "load={concurrency: 2}")


@pytest.mark.parametrize("name", shipped.names())
def test_shipped_scenarios_load_and_ask_first(name: str) -> None:
    path = shipped.find(name)
    first, second = path.read_text().splitlines()[:2]
    assert first == "# yaml-language-server: $schema=scenario.schema.json"
    assert second.startswith("question: ")
    assert second.endswith("?")
    assert decode_step(resolve(load(path))).ops


NAMES_FILES = """\
question: 🧮 Does a scenario name files of every kind?
gpu: my_gpu.yaml
interconnect: nvlink5
host: xeon_dual
stack: sglang
drafter: {block: 8, model: my_drafter.yaml}
tree: {budget: 8}
acceptance: {trace: logs/lengths.csv}
load: {context_tokens: 2000, output_tokens: 40}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a scenario and every file that one may name."""
    root = tmp_path / "project"
    (root / "logs").mkdir(parents=True)
    (root / "logs/lengths.csv").write_text("length\n3\n4\n5\n6\n")
    (root / "my_gpu.yaml").write_text("extends: b300_sxm\ntitle: A B300 of my own\n")
    (root / "my_drafter.yaml").write_text("extends: kimi_dflash\ntitle: A drafter of my own\n")
    (root / "before.yaml").write_text(GOOD)
    causes = "  causes: [{name: the GPU, keys: [gpu]}]\n"
    (root / "mine.yaml").write_text(f"{NAMES_FILES}regression:\n  since: before.yaml\n{causes}")
    (root / "shipped.yaml").write_text(f"{NAMES_FILES}regression:\n  since: b300_now\n{causes}")
    return root


def stored(scenario: Scenario, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scenario.json"
    path.write_text(json.dumps(as_file_in(scenario, folder), ensure_ascii=False), encoding="utf-8")
    return path


def files_of(scenario: Scenario) -> list[Path]:
    assert scenario.regression is not None
    names = (scenario.gpu, scenario.drafter.model, scenario.acceptance.trace, scenario.regression.since)
    return [Path(name or "").resolve() for name in names]


@pytest.mark.parametrize("name", ["mine.yaml", "shipped.yaml"])
@pytest.mark.parametrize("given_as", ["absolute", "relative"])
def test_a_resolved_scenario_is_read_again_from_any_folder(
    project: Path, name: str, given_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    before = load(project / name if given_as == "absolute" else Path(name))
    files = files_of(before)
    kept = stored(
        before, project / "results/mine" if given_as == "absolute" else Path("results/mine")
    ).resolve()
    monkeypatch.chdir(project.parent)
    for path in (kept, Path(os.path.relpath(kept))):
        again = load(path)
        assert files_of(again) == files
        assert stored(again, kept.parent).read_text() == kept.read_text()
        assert resolve(again).machine.gpu.title == "A B300 of my own"


def test_a_resolved_scenario_goes_along_with_the_files_it_names(project: Path) -> None:
    kept = stored(load(project / "mine.yaml"), project / "results/mine")
    elsewhere = project.rename(project.with_name("moved"))
    found = files_of(load(elsewhere / kept.relative_to(project)))
    assert all(path.is_relative_to(elsewhere) and path.is_file() for path in found)


def test_shipped_scenarios_are_named_and_not_looked_for_where_they_were(project: Path) -> None:
    kept = stored(load(project / "shipped.yaml"), project / "results/mine")
    assert json.loads(kept.read_text())["regression"]["since"] == "b300_now"
    assert str(shipped.folder()) not in kept.read_text()
