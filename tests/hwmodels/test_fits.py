"""Lines through measured rows: exact on lines, and equal to the published expert fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import catalog, tables
from hwmodels.fits import affine_fit
from hwmodels.stacks import Selector
from hwmodels.tables import ExpertShape, ExpertsLine
from hwmodels.work import DType, experts_touched

xs = st.lists(st.integers(0, 400), min_size=3, max_size=12, unique=True)
coefficients = st.floats(0.01, 1000)


@given(xs, coefficients, coefficients)
def test_a_line_is_recovered(x: list[int], intercept: float, slope: float) -> None:
    fit = affine_fit(x, [intercept + slope * v for v in x])
    assert [fit(v) for v in x] == pytest.approx([intercept + slope * v for v in x])
    assert fit.max_relative_error < 1e-6


@given(xs, st.lists(st.floats(0.1, 1000), min_size=12, max_size=12))
def test_no_fit_falls_or_starts_below_nothing(x: list[int], y: list[float]) -> None:
    fit = affine_fit(x, y[: len(x)])
    assert fit.intercept >= 0
    assert fit.slope >= 0


@given(xs, st.lists(st.floats(0.1, 1000), min_size=12, max_size=12))
def test_the_largest_residual_is_reported(x: list[int], y: list[float]) -> None:
    fit = affine_fit(x, y[: len(x)])
    worst = max(abs(fit(a) / b - 1) for a, b in zip(x, y, strict=False))
    assert fit.max_relative_error == pytest.approx(worst)


def test_a_falling_cloud_is_fitted_by_its_mean() -> None:
    fit = affine_fit([1, 2, 3], [3, 2, 1])
    assert fit.intercept == pytest.approx(2)
    assert fit.slope == 0


def test_two_points_are_refused() -> None:
    with pytest.raises(ValueError, match="a line needs at least 3 points, got 2"):
        affine_fit([1, 2], [1, 2])


def line(gpu: str, version: str, kernel: str, dtype: DType) -> ExpertsLine:
    selector = Selector(gpus=(), framework="sglang", version=version, kernel=kernel)
    lines = tables.expert_lines(catalog.gpu(gpu).measured_as, selector, dtype)
    return next(line for line in lines if line.shape == ExpertShape(384, 7168, 256, 8))


def pro_6000() -> ExpertsLine:
    return line("rtx_pro_6000_server", "0.5.10", "marlin", DType.INT4)


def b300_marlin() -> ExpertsLine:
    return line("b300_sxm", "0.5.10", "marlin", DType.INT4)


# Derived from ai-dynamo/aiconfigurator@095f58a, Kimi K2 shape over 8 ranks: us = a + b * experts touched.
@pytest.mark.parametrize(
    ("gpu", "version", "kernel", "dtype", "a", "b"),
    [
        ("rtx_pro_6000_server", "0.5.10", "marlin", DType.INT4, 22.9, 1.915),
        ("rtx_pro_6000_server", "0.5.14", "marlin", DType.INT4, 18.5, 2.086),
        ("b300_sxm", "0.5.10", "marlin", DType.INT4, 36.5, 0.756),
        ("b300_sxm", "0.5.14", "trtllm_gen", DType.INT4, 27.0, 0.811),
        ("b300_sxm", "0.5.14", "trtllm_gen", DType.NVFP4, 20.4, 0.504),
        ("b200_sxm", "0.5.10", "marlin", DType.INT4, 36.6, 0.784),
        ("b200_sxm", "0.5.14", "trtllm_gen", DType.NVFP4, 21.9, 0.500),
        ("h200_sxm", "0.5.14", "marlin", DType.INT4, 27.1, 1.031),
        ("h100_sxm", "0.5.14", "marlin", DType.INT4, 31.8, 1.182),
    ],
)
def test_published_expert_fits_are_reproduced(
    gpu: str, version: str, kernel: str, dtype: DType, a: float, b: float
) -> None:
    fit = line(gpu, version, kernel, dtype).fit
    assert fit.intercept == pytest.approx(a, rel=0.05 if gpu == "rtx_pro_6000_server" else 0.02)
    assert fit.slope == pytest.approx(b, rel=0.02)


# The source articles measured one full-width INT4 layer on a PRO 6000; one of 8 ranks holds an eighth.
@pytest.mark.parametrize(("tokens", "full_width_ms"), [(9, 1.18), (32, 3.171)])
def test_the_articles_pro_6000_layer_is_reproduced(tokens: int, full_width_ms: float) -> None:
    touched = experts_touched(tokens, 384, 8)
    assert pro_6000().fit(touched) == pytest.approx(full_width_ms * 1000 / 8, rel=0.04)


# The articles scaled the PRO 6000 by bandwidth to 1.97 and 5.3 ms; the measured kernel needs twice that.
@pytest.mark.parametrize(("tokens", "measured_ms", "claimed_ms"), [(9, 5.2, 1.97), (33, 10.9, 5.3)])
def test_b300_does_not_scale_with_its_bandwidth(tokens: int, measured_ms: float, claimed_ms: float) -> None:
    layer_us = b300_marlin().fit(experts_touched(tokens, 384, 8))
    assert 60 * layer_us / 1000 == pytest.approx(measured_ms, rel=0.01)
    assert 60 * layer_us / 1000 > 2 * claimed_ms
