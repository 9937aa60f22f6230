"""Free text of publications matched against the catalog."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import catalog
from hwmodels.catalog import Kind
from sim.validation import naming, workloads
from sim.validation.errors import Unpredictable
from sim.validation.naming import Quantisation


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("B200 SXM", "b200_sxm"),
        ("B200", "b200_sxm"),
        ("GB200", "gb200"),
        ("NVIDIA H200 SXM (141 GB)", "h200_sxm"),
        ("RTX PRO 6000 Blackwell", "rtx_pro_6000_server"),
        ("rtx-3090", "rtx_3090"),
        ("RTX A6000", "rtx_a6000"),
        ("8x b300_sxm", "b300_sxm"),
        ("8xB200", "b200_sxm"),
        ("2\N{MULTIPLICATION SIGN}RTX A6000", "rtx_a6000"),
        ("NVIDIA H100 SXM5 80GB", "h100_sxm"),
        ("B200 SXM6", "b200_sxm"),
        ("GeForce RTX 5090", "rtx_5090"),
    ],
)
def test_gpus_are_known_by_what_publications_call_them(text: str, name: str) -> None:
    assert naming.gpu(text).name == name


@pytest.mark.parametrize(
    "text",
    [
        "H100 PCIe",
        "H100 80GB PCIe",
        "H100 NVL",
        "H200 NVL",
        "RTX 3090 Ti",
        "RTX 5090 Laptop",
        "RTX A6000 Ada",
    ],
)
def test_a_relative_of_a_known_gpu_is_not_that_gpu(text: str) -> None:
    with pytest.raises(Unpredictable, match="not in the catalog"):
        naming.gpu(text)


@pytest.mark.parametrize("kind", [Kind.GPU, Kind.MODEL])
def test_no_entry_shuts_itself_out(kind: Kind) -> None:
    for name in catalog.names(kind):
        entry = catalog.entry(kind, name)
        for other in entry.unlike:
            assert entry not in [match.entry for match in naming.matches(kind, f"an {other} of somebody")]
            assert entry in [match.entry for match in naming.matches(kind, entry.aliases[0])]


@pytest.mark.parametrize("text", ["B100", "GB2000", "XB200", "A100 80GB", "RTX PRO 60000", ""])
def test_a_name_inside_another_word_is_no_name(text: str) -> None:
    with pytest.raises(Unpredictable):
        naming.gpu(text)


@pytest.mark.parametrize(
    ("text", "quantised", "name"),
    [
        ("Kimi-K2.6 (1T-A32B MLA+MoE)", "INT4 g32 (native) + BF16 attn", "kimi_k2_6"),
        ("Kimi-K2.5 NVFP4", "NVFP4", "kimi_k2_6_nvfp4"),
        ("Kimi-K2.5", "NVFP4", "kimi_k2_6_nvfp4"),
        ("Kimi-K2.5 INT4", "", "kimi_k2_6"),
        ("DeepSeek-R1-FP4", "NVFP4 experts, BF16 attention", "deepseek_r1_nvfp4"),
        ("Qwen3-8B", "BF16", "qwen3_8b"),
        ("Qwen3.8-27B AWQ", "", "qwen3_5_27b_awq"),
        ("Qwen3.5-27B Q4_K_M", "", "qwen3_5_27b_q4_k_m"),
        ("Qwen3.5-27B", "", "qwen3_5_27b"),
        ("Kimi K2 Thinking INT4", "", "kimi_k2_6"),
        ("DeepSeek-R1-0528 FP8", "", "deepseek_v3"),
        ("DeepSeek-R1 (671B-A37B)", "FP8", "deepseek_v3"),
        ("GLM-5.2 NVFP4", "", "glm_5_nvfp4"),
        ("Qwen3.5-397B-A17B", "", "qwen3_5_397b_a17b"),
        ("DeepSeek-R1-0528-Qwen3-8B", "", "qwen3_8b"),
    ],
)
def test_the_quantisation_picks_the_variant(text: str, quantised: str, name: str) -> None:
    assert naming.target_model(text, quantised).name == name


@pytest.mark.parametrize(
    ("text", "quantised", "words"),
    [
        ("Kimi-K9", "INT4", "not in the catalog"),
        ("Kimi-K2.9", "INT4", "not in the catalog"),
        ("DeepSeek-R1-Distill-Llama-70B", "FP8", "not in the catalog"),
        ("DeepSeek-R1-Distill", "", "not in the catalog"),
        ("DeepSeek-R1 70B", "", "not in the catalog"),
        ("Qwen3.5-27B-A3B", "", "not in the catalog"),
        ("GLM-5-Air", "NVFP4", "not in the catalog"),
        ("Qwen3-8B", "NVFP4", "known as bfloat16, not as NVFP4"),
        ("Qwen3-8B", "Q8_0", "quantisation 'Q8_0' is not known"),
        ("", "", "names no model"),
    ],
)
def test_an_unknown_model_or_variant_is_said(text: str, quantised: str, words: str) -> None:
    with pytest.raises(Unpredictable, match=words):
        naming.target_model(text, quantised)


def test_a_version_stands_for_its_patches() -> None:
    assert naming.stack("vLLM 0.15.1") == naming.stack("vLLM 0.15") == "vllm_0_1x"
    for text in ("vLLM v0.18.1", "vllm-0.16.0rc2", "vllm/vllm-openai:v0.17.1"):
        assert naming.stack(text) == "vllm_0_1x", text
    assert naming.stack("vLLM 0.150") == naming.stack("vLLM") == "vllm"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("INT4 (mxint4 flashinfer_trtllm MoE)", Quantisation.INT4),
        ("NVFP4 experts, BF16 attention", Quantisation.NVFP4),
        ("bfloat16", Quantisation.BF16),
        ("AWQ", Quantisation.AWQ),
        ("Q4_K_M", Quantisation.Q4_K_M),
        ("fp8", Quantisation.FP8),
        ("", None),
        ("ternary", None),
    ],
)
def test_what_is_said_first_of_the_weights_counts(text: str, kind: Quantisation | None) -> None:
    assert naming.quantisation(text) is kind


@pytest.mark.parametrize(
    "kind", [Kind.GPU, Kind.MODEL, Kind.STACK, Kind.INTERCONNECT, Kind.HOST, Kind.DRAFTER]
)
def test_every_entry_answers_to_its_own_name_and_aliases(kind: Kind) -> None:
    for name in catalog.names(kind):
        for alias in (name, *catalog.entry(kind, name).aliases):
            found = naming.matches(kind, alias)
            longest = [match.entry.name for match in found if match.length == found[0].length]
            assert name in longest, alias


@pytest.mark.parametrize(
    ("text", "method", "name"),
    [
        ("", "EAGLE-3.1", "kimi_eagle3_1_mla"),
        ("EAGLE3.1", "EAGLE3 chain", "kimi_eagle3_1_mla"),
        ("", "EAGLE-3 chain", "kimi_eagle3"),
        ("", "DDTree", "kimi_dflash"),
        ("lightseekorg/kimi-k2.6-eagle3-mla", "EAGLE 3", "kimi_eagle3_mla"),
    ],
)
def test_drafters_are_known_by_themselves_their_version_or_the_method(
    text: str, method: str, name: str
) -> None:
    assert naming.drafter(text, method, catalog.target_model("kimi_k2_6")).name == name


def test_an_attention_kernel_is_no_expert_kernel() -> None:
    known = catalog.stack("vllm").experts
    assert naming.expert_kernel("INT4 (flashinfer_trtllm MoE)", known) == "trtllm_gen"
    assert naming.expert_kernel("NVFP4, CUTLASS experts", known) == "cutlass"
    for text in ("TRITON_MLA", "trtllm_mla", "CUTLASS_MLA", "TRITON_ATTN"):
        assert naming.expert_kernel(f"vLLM fork, {text}", known) is None, text


@given(st.text(max_size=60))
def test_any_text_is_matched_or_refused(text: str) -> None:
    said = naming.words(text)
    assert said.startswith(" ")
    assert said.endswith(" ")
    assert naming.words(said) == said
    naming.matches(Kind.GPU, text)


@given(st.sampled_from(["B200", "GB200", "H100"]), st.text(alphabet=" ,;()/-", max_size=5))
def test_punctuation_around_a_name_changes_nothing(name: str, around: str) -> None:
    assert naming.gpu(f"{around}{name.lower()}{around}").name == naming.gpu(name).name


@pytest.mark.parametrize(
    ("context", "workload", "expected"),
    [
        ("8192", "", (8192, 1024)),
        ("0", "decode bench", (0, 1024)),
        ("1k in/2k out", "min-latency", (1024, 2048)),
        ("1024", "1k/1k chat", (1024, 1024)),
        ("1536", "random 1024 in / 1024 out, closed loop", (1024, 1024)),
        ("8192", "bench_one_batch 8192 in/1024 out", (8192, 1024)),
        ("", "MATH-500", (128, 1024)),
        ("16,384", "", (16384, 1024)),
        ("1024/8192", "", (1024, 8192)),
        ("8K/1K", "", (8192, 1024)),
        ("ISL 1024 OSL 8k", "", (1024, 8192)),
        ("", "ISL/OSL 1024/8192", (1024, 8192)),
        ("", "", (1024, 1024)),
        ("unknown", "", (1024, 1024)),
    ],
)
def test_contexts_are_read_or_assumed(context: str, workload: str, expected: tuple[int, int]) -> None:
    found = workloads.contexts(context, workload)
    assert found[:2] == expected
    stated = " in" in f" {context}{workload}" or "/" in context + workload or "OSL" in context
    assert bool(found.note) is not stated


@pytest.mark.parametrize("context", ["long (2x)", "-5 tokens", "1k-2k"])
def test_a_context_that_cannot_be_read_is_refused(context: str) -> None:
    with pytest.raises(Unpredictable, match="context_tokens"):
        workloads.contexts(context, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("B2000 SXM", "GPU 'B2000 SXM' is not in the catalog, did you mean 'b200_sxm'?"),
        ("H2000", "GPU 'H2000' is not in the catalog, did you mean 'h200_sxm'?"),
        ("TPU v5", "(known: b200_sxm, b300_sxm, "),
    ],
)
def test_a_slip_in_a_name_is_recognised(text: str, said: str) -> None:
    with pytest.raises(Unpredictable) as caught:
        naming.gpu(text)
    assert said in str(caught.value)
