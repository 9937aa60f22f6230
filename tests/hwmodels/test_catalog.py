"""The shipped catalog: complete, sourced, found by name, and strict when edited."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from hwmodels import catalog, documents, tables
from hwmodels.catalog import Kind
from hwmodels.devices import Gpu, Host, Interconnect
from hwmodels.documents import Document, KeyPath, dotted, resolve, validate
from hwmodels.drafters import Accuracy
from hwmodels.entry import Entry, Figure
from hwmodels.errors import DocumentError
from hwmodels.estimate import Source
from hwmodels.models import Gqa, Mla, TargetModel
from hwmodels.stacks import Stack
from hwmodels.work import BITS_PER_VALUE, DType

MODELS: dict[Kind, type[Entry]] = {
    Kind.GPU: Gpu,
    Kind.INTERCONNECT: Interconnect,
    Kind.HOST: Host,
    Kind.STACK: Stack,
    Kind.MODEL: TargetModel,
}


def model_of(kind: Kind, name: str) -> type[Entry]:
    """What the entry *name* of *kind* is made of."""
    return type(catalog.drafter(name)) if kind is Kind.DRAFTER else MODELS[kind]


SHIPPED = [(kind, name) for kind in Kind for name in catalog.names(kind)]
TABLED = sorted({row["gpu"] for row in tables.rows("gemm")})
"""GPUs that the measured tables name; others are answered from a sibling's or from the roofline."""
every_entry = pytest.mark.parametrize(("kind", "name"), SHIPPED)
OPTIONAL = {
    *("notes", "range", "reread_gb_s", "tile_rows", "small", "capture_limits", "hypothetical", "targets"),
    *(
        "aliases",
        "unlike",
        "index",
        "linear_attention",
        "mlp_dtype",
        "head_dtype",
        "output_gate",
        "usual_interconnect",
        "usual_host",
        "grouped_attention",
        "fills_gpu",
    ),
    *("accuracy", "depth_slope", "step_sd", "easy_share", "stated_slope"),
    *("grouped_attention", "usual_host", "serial_us_per_1k_context"),
    *("collective_base_us", "collective_hop_us", "cutoffs", "speculative", "largest"),
    *("shared_expert_stream_max_tokens", "programmatic_launch_us"),
}


def path_of(kind: Kind, name: str) -> Path:
    return catalog.DATA / kind.value / f"{name}.yaml"


@cache
def document(kind: Kind, name: str) -> Document:
    return resolve(path_of(kind, name))


def all_figures(value: Any) -> Iterator[Figure]:
    """Every Figure inside *value*, those in lists included."""
    if isinstance(value, Figure):
        yield value
    elif isinstance(value, BaseModel):
        yield from all_figures([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, dict | list | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            yield from all_figures(child)


def paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    """The path of every key under *value*."""
    if not isinstance(value, dict | list):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [p for key, child in items for p in ((*path, key), *paths(child, (*path, key)))]


def parent(data: Any, path: KeyPath) -> Any:
    for part in path[:-1]:
        data = data[part]
    return data


def keyed(kind: Kind, name: str) -> list[KeyPath]:
    """Paths that end in a key, not in a list index nor in a key of a free mapping."""
    found = paths(document(kind, name).data)
    return [p for p in found if isinstance(p[-1], str)]


entries = st.sampled_from(SHIPPED)
edits = entries.flatmap(lambda entry: st.tuples(st.just(entry), st.sampled_from(keyed(*entry))))
Edit = tuple[tuple[Kind, str], KeyPath]


def refusal(kind: Kind, name: str, data: dict[str, Any]) -> DocumentError | None:
    """The error that *data* gets as an edited version of an entry; None where it is valid."""
    original = document(kind, name)
    try:
        validate(Document(original.file, data, original.places), model_of(kind, name))
    except DocumentError as error:
        return error
    return None


@every_entry
def test_an_entry_is_named_like_its_file(kind: Kind, name: str) -> None:
    entry = validate(document(kind, name), model_of(kind, name))
    assert entry.name == name
    assert entry.title


@every_entry
def test_an_entry_is_found_by_its_name(kind: Kind, name: str) -> None:
    found, entry = catalog.find(name)
    assert (found, entry.name, type(entry)) == (kind, name, model_of(kind, name))


def test_no_name_is_used_twice() -> None:
    names = [name for _, name in SHIPPED]
    assert len(set(names)) == len(names)


def test_every_section_has_entries() -> None:
    assert all(catalog.names(kind) for kind in Kind)


@pytest.mark.parametrize("name", [name for _, name in SHIPPED])
def test_every_figure_has_a_reference_and_lies_in_its_range(name: str) -> None:
    for figure in all_figures(catalog.find(name)[1]):
        assert len(figure.ref) >= 3
        low, high = figure.range or (figure.value, figure.value)
        assert 0 <= low <= figure.value <= high
        assert figure.spread == pytest.approx((high - low) / 4 / figure.value if figure.value else 0)


@pytest.mark.parametrize("name", catalog.names(Kind.GPU))
def test_every_assumed_figure_of_a_gpu_has_a_range(name: str) -> None:
    assumed = [figure for figure in all_figures(catalog.gpu(name)) if figure.source is Source.ASSUMED]
    assert all(figure.range for figure in assumed)


def raw_figures(value: Any) -> int:
    """How many mappings with a value and a source *value* holds."""
    if isinstance(value, list):
        return sum(map(raw_figures, value))
    if not isinstance(value, dict):
        return 0
    return ({"value", "source"} <= set(value)) + sum(map(raw_figures, value.values()))


@every_entry
def test_figures_lists_every_figure(kind: Kind, name: str) -> None:
    data = document(kind, name).data
    listed = catalog.figures(catalog.find(name)[1])
    assert len(listed) == len({key for key, _ in listed}) == raw_figures(data)


def test_figures_are_listed_by_dotted_key() -> None:
    listed = dict(catalog.figures(catalog.gpu("b300_sxm")))
    assert listed["tflops.fp8"].value == 4500
    assert listed["noise.step_cv"].value == 0.013


@pytest.mark.parametrize("stack", catalog.names(Kind.STACK))
@pytest.mark.parametrize("gpu", TABLED)
def test_every_stack_covers_every_gpu_with_tables(stack: str, gpu: str) -> None:
    entry = catalog.stack(stack)
    assert any(gpu in kernel.gpus for kernel in entry.attention)
    assert any(gpu in kernel.gpus and kernel.dtype is DType.INT4 for kernel in entry.experts)


@pytest.mark.parametrize("stack", catalog.names(Kind.STACK))
def test_every_stack_names_known_gpus_and_covers_every_fabric(stack: str) -> None:
    entry = catalog.stack(stack)
    named = {gpu for kernel in (*entry.attention, *entry.experts) for gpu in kernel.gpus}
    assert named == set(TABLED)
    fabrics = {catalog.interconnect(name).fabric for name in catalog.names(Kind.INTERCONNECT)}
    assert fabrics == {fabric for choice in entry.allreduce for fabric in choice.fabrics}


# config.json of moonshotai/Kimi-K2.6.
def test_kimi_has_its_published_shape() -> None:
    kimi = catalog.target_model("kimi_k2_6")
    assert (kimi.layers, kimi.dense_layers, kimi.hidden, kimi.attention.heads) == (61, 1, 7168, 64)
    assert kimi.experts is not None
    assert (kimi.experts.count, kimi.experts.top_k, kimi.experts.intermediate) == (384, 8, 2048)
    assert isinstance(kimi.attention, Mla)
    assert kimi.attention.latent == 576


def mixer_parameters(model: TargetModel, layer: int) -> int:
    """Weights of the token mixer of *layer*, norms and biases left out."""
    hidden, linear = model.hidden, model.linear_attention
    if linear is not None and model.is_linear(layer):
        keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
        return hidden * (2 * keys + 3 * values + 2 * linear.value_heads) + linear.conv_width * (
            2 * keys + values
        )
    attention = model.attention
    if isinstance(attention, Gqa):
        queries = (3 if attention.output_gate else 2) * attention.heads
        return hidden * attention.head_dim * (queries + 2 * attention.kv_heads)
    head = attention.nope_dim + attention.rope_dim
    up = attention.q_lora * attention.heads * head
    up += attention.kv_lora * attention.heads * (attention.nope_dim + attention.v_dim)
    down = hidden * (attention.q_lora + attention.latent)
    index = attention.index
    if index is not None:
        down += attention.q_lora * index.heads * index.head_dim + hidden * (index.head_dim + index.heads)
    return up + down + hidden * attention.heads * attention.v_dim


def parameters(model: TargetModel, active: bool = False) -> float:
    """Weights of *model* with embedding and LM head; only what one token uses where *active*."""
    total = 2 * model.vocab * model.hidden
    for layer in range(model.layers):
        total += mixer_parameters(model, layer)
        width, routed = model.dense_intermediate, model.experts
        if routed is not None and layer >= model.dense_layers:
            width = ((routed.top_k if active else routed.count) + routed.shared) * routed.intermediate
            total += model.hidden * routed.count
        total += 3 * model.hidden * width
    return total


# What the publishers state, in billions; the small ones from the files of their checkpoints.
@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("kimi_k2_6", 1026, 32.9),
        ("deepseek_v3", 671, 37.5),
        ("glm_5", 744, 40),
        ("qwen3_5_397b_a17b", 397, 17),
        ("qwen3_30b_a3b", 30.5, 3.3),
        ("qwen3_8b", 8.19, 8.19),
        ("qwen3_5_27b", 27, 27),
    ],
)
def test_sizes_add_up_to_the_published_parameters(name: str, billions: float, active: float) -> None:
    model = catalog.target_model(name)
    assert parameters(model) / 1e9 == pytest.approx(billions, rel=0.01)
    assert parameters(model, active=True) / 1e9 == pytest.approx(active, rel=0.05)


def test_a_quantised_model_is_as_large_as_its_file() -> None:
    model = catalog.target_model("qwen3_5_27b_q4_k_m")
    size_gb = parameters(model) * BITS_PER_VALUE[model.dense_dtype] / 8 / 1e9
    # Qwen3.5-27B-Q4_K_M.gguf, "about 16 GB" (GiB or GB is not said).
    assert 15.5 < size_gb < 16.5 * 1.074


@pytest.mark.parametrize("kind", Kind)
def test_an_alias_is_lower_case_and_means_one_entry(kind: Kind) -> None:
    entries = [catalog.find(name)[1] for name in catalog.names(kind)]
    aliases = [alias for entry in entries for alias in entry.aliases]
    assert all(alias == alias.lower().strip() != "" for alias in aliases)
    assert len(set(aliases)) == len(aliases)


LOADERS = {
    catalog.gpu: "b200_sxm",
    catalog.interconnect: "nvlink5",
    catalog.host: "epyc_dual",
    catalog.stack: "sglang",
    catalog.target_model: "kimi_k2_6",
    catalog.drafter: "kimi_dflash",
}


@pytest.mark.parametrize(("load", "name"), LOADERS.items())
def test_each_section_has_a_loader(load: Any, name: str) -> None:
    assert load(name) is catalog.find(name)[1]


@pytest.mark.parametrize(
    ("load", "name", "expected"),
    [
        (catalog.gpu, "b300", "no gpu named 'b300', did you mean 'b300_sxm'?"),
        (catalog.stack, "sglan", "no stack named 'sglan', did you mean 'sglang'?"),
        (catalog.interconnect, "nvlinkk5", "no interconnect named 'nvlinkk5', did you mean 'nvlink5'?"),
        (catalog.host, "epyc", "no host named 'epyc', did you mean 'epyc_dual'?"),
        (catalog.target_model, "kimi_k26", "no model named 'kimi_k26', did you mean 'kimi_k2_6'?"),
        (catalog.host, "q", "no host named 'q' (known: desktop, epyc_dual, grace, xeon_dual)"),
        (catalog.find, "b300_sx", "no entry named 'b300_sx', did you mean 'b300_sxm'?"),
        (catalog.find, "???", "no entry named '???'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(load: Any, name: str, expected: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load(name)
    assert str(caught.value) == f"catalog: {expected}"


def test_an_entry_can_be_loaded_by_path(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(path_of(Kind.GPU, "b300_sxm").read_text().replace("value: 6300", "value: 6000"))
    assert catalog.gpu(str(own)).achieved_bandwidth_gb_s.value == 6000


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"own\.yaml: no such file"):
        catalog.gpu(str(tmp_path / "own.yaml"))


@given(edits)
def test_a_missing_key_is_named(edit: Edit) -> None:
    entry, path = edit
    # Either of these two may be missing, but not both.
    assume(path[-1] not in ("rates", "top1_logit"))
    # A model may go without, if all of its layers are dense.
    assume((entry[0], path) != (Kind.MODEL, ("experts",)))
    data = copy.deepcopy(document(*entry).data)
    del parent(data, path)[path[-1]]
    error = refusal(*entry, data)
    # A GPU lists the arithmetic it has, and libraries such as NCCL are of no engine: neither is owed.
    not_owed = path[-2:-1] == ("tflops",) or (path[0], path[-1]) == ("allreduce", "framework")
    # An EAGLE drafter has a head of its own, so it says of what type.
    owed = (entry[0], path[-1]) == (Kind.DRAFTER, "head_dtype")
    assert (error is None) == ((path[-1] in OPTIONAL and not owed) or not_owed)
    assert error is None or (error.key, error.problem) == (dotted(path), "missing, and it has no default")


@given(edits)
def test_an_unknown_key_is_named(edit: Edit) -> None:
    entry, path = edit
    assume("tflops" not in path)
    data = copy.deepcopy(document(*entry).data)
    parent(data, path)["zzz"] = 1
    error = refusal(*entry, data)
    assert error is not None
    assert error.key == dotted((*path[:-1], "zzz"))
    assert error.problem.startswith("unknown key (known: ")


@given(edits)
def test_a_value_of_the_wrong_type_is_named(edit: Edit) -> None:
    entry, path = edit
    data = copy.deepcopy(document(*entry).data)
    holder = parent(data, path)
    holder[path[-1]] = "text" if isinstance(holder[path[-1]], dict) else {"a": 1}
    error = refusal(*entry, data)
    assert error is not None
    assert error.key == dotted(path)
    assert error.line == document(*entry).places[path][1]
    assert error.problem.startswith("expected ")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "value: 7750",
            "value: -1",
            ":24: memory_bandwidth_gb_s.value: expected greater than or equal to 0, got -1",
        ),
        ("value: 7750", "value: '7750'", ':24: memory_bandwidth_gb_s.value: expected number, got "7750"'),
        ("value: 7750", "value: true", ":24: memory_bandwidth_gb_s.value: expected number, got true"),
        (
            "value: 7750",
            "value: 7000",
            ":23: memory_bandwidth_gb_s: value 7000.0 lies outside its range [7750.0, 8000.0]"
            " (an entry that extends another inherits its range; range: null takes it away)",
        ),
        (
            "value: 7750",
            "value: 9000",
            ":23: memory_bandwidth_gb_s: value 9000.0 lies outside its range [7750.0, 8000.0]"
            " (an entry that extends another inherits its range; range: null takes it away)",
        ),
        (
            "source: datasheet",
            "source: datashet",
            ":25: memory_bandwidth_gb_s.source: "
            "expected 'measured', 'fitted', 'scaled', 'datasheet' or 'assumed', "
            "got \"datashet\", did you mean 'datasheet'?",
        ),
        (
            "noise:\n",
            "noise:\n  kernel_vc: 1\n",
            ":95: noise.kernel_vc: unknown key, did you mean 'kernel_cv'?",
        ),
    ],
)
def test_an_edited_gpu_is_refused_in_words(tmp_path: Path, old: str, new: str, expected: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(path_of(Kind.GPU, "b300_sxm").read_text().replace(old, new, 1))
    with pytest.raises(DocumentError) as caught:
        catalog.gpu(str(own))
    assert str(caught.value) == f"{own}{expected}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("top_k: 8", "top_k: 800", ":20: experts: top_k 800 exceeds the 384 experts"),
        ("dense_layers: 1", "dense_layers: 99", ": dense_layers 99 exceeds layers 61"),
        (", heads: 64", "", ":19: attention.heads: missing, and it has no default"),
        ("q_lora", "qlora", ":19: attention.qlora: unknown key, did you mean 'q_lora'?"),
        ("kind: mla", "kind: mqa", ":19: attention.kind: expected one of 'mla', 'gqa', got 'mqa'"),
        ("kind: mla, ", "", ":19: attention.kind: missing, and it has no default"),
    ],
)
def test_sizes_of_a_model_must_agree(tmp_path: Path, old: str, new: str, expected: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(path_of(Kind.MODEL, "kimi_k2_6").read_text().replace(old, new))
    with pytest.raises(DocumentError) as caught:
        catalog.target_model(str(own))
    assert str(caught.value) == f"{own}{expected}"


def test_no_shipped_file_comes_near_the_limits() -> None:
    sizes = [path_of(kind, name).stat().st_size for kind, name in SHIPPED]
    assert max(sizes) < documents.MAX_BYTES / 5


@pytest.mark.parametrize("word", ["assumed", "ASSUMED", "Assumed"])
def test_a_source_may_be_written_as_reports_print_it(word: str) -> None:
    figure = Figure.model_validate_json(f'{{"value": 1.0, "source": "{word}", "ref": "what if"}}')
    assert figure.source is Source.ASSUMED


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"top1_logit": 1.0}, "give rates or top1_logit"),
        ({"rates": None}, "give rates or top1_logit"),
        ({"rates": [0.8, 0.9]}, "unconditional rates fall from at most 1"),
        ({"rates": [1.2, 0.9]}, "unconditional rates fall from at most 1"),
        ({"rates": [0.9, -0.1]}, "unconditional rates fall from at most 1"),
        ({"off_spine": 1.5}, "less than or equal to 1"),
    ],
)
def test_an_accuracy_that_cannot_be_is_refused(changes: dict[str, object], said: str) -> None:
    known = catalog.drafter("kimi_dflash").accuracy
    assert known is not None
    data = known.model_dump(mode="json") | changes
    with pytest.raises(ValidationError, match=said):
        Accuracy.model_validate_json(json.dumps(data))


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_every_figure_can_be_given_another_value(kind: Kind, name: str) -> None:
    entry = catalog.entry(kind, name)
    keys = [key for key, _ in catalog.figures(entry)]
    changed = catalog.with_values(entry, {key: float(index) for index, key in enumerate(keys)})
    found = catalog.figures(changed)
    assert [key for key, _ in found] == keys
    assert [figure.value for _, figure in found] == [float(index) for index in range(len(keys))]
    assert all(figure.range is None for _, figure in found)
    assert catalog.entry(kind, name) is entry


@pytest.mark.parametrize(
    "key", ["nothing", "noise.nothing", "tflops.nothing", "name", "kernel_floor_us.value"]
)
def test_a_figure_that_is_none_cannot(key: str) -> None:
    with pytest.raises((KeyError, AttributeError)):
        catalog.with_values(catalog.gpu("b300_sxm"), {key: 1.0})
