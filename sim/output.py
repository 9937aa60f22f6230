"""Files under ``results/<scenario>/`` and the JSON object that ``--json`` prints.

``summary.json`` and ``report.txt`` are small and kept; ``runs.csv`` and ``costs.csv`` hold
every run and cost, ``steps.csv`` every step of the first runs; ``scenario.json`` is the
scenario as it was resolved, to be run again from any folder. Files appear whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from hwmodels.estimate import Estimate, Source
from sim import digests, files
from sim.answer import Answer, Comparison, launch_counts
from sim.causes import Explanation
from sim.drafting import required_accuracy
from sim.graph import Component, Op, Phase
from sim.scenario import as_file_in
from sim.setup import LaunchMode, Setup
from sim.statistics import Spread, Summary
from sim.uncertainty.posterior import Posterior
from sim.uncertainty.total import Band, Total

FORMAT_VERSION = 1
"""1 (2026-11): first."""
SIGNIFICANT_DIGITS = 9


def summary_object(answer: Answer) -> dict[str, Any]:
    """The stable JSON object of an Answer. Shares are fractions and add to 1."""
    summary, setup = answer.summary, answer.setup
    nodes, eager = launch_counts(answer)
    samples = setup.machine.samples
    return {
        "format_version": FORMAT_VERSION,
        "question": setup.scenario.question,
        **summary_fields(summary),
        **_batch(setup),
        "acceptance_range": [
            {"mean_length": end.mean_length, "throughput_tok_s": _spread(end.throughput_tok_s)}
            for end in answer.range_ends
        ],
        "total": _total(answer.total),
        **_calibration(setup.posterior),
        "required_accuracy": [
            {
                "mean_length": mean,
                "log_odds_shift": _rounded(shift),
                "landed": _rounded(landed),
                "top1_by_position": [_rounded(chance) for chance in top1],
            }
            for mean, shift, landed, top1 in required_accuracy(setup)
        ],
        "launch": {
            "verify": setup.verify_launch.value,
            "graph_kernels": nodes,
            "eager_kernels": eager,
            "capture_limit_broken": setup.broken_limit is not None,
        },
        "anchor": _anchor(answer.comparison),
        **_explanation(answer.explanation),
        "assumptions": list(setup.scenario.assumptions),
        "seed": setup.scenario.seed,
        "engine": answer.engine.value,
        "replayed_on_simpy": None if answer.replayed is None else answer.replayed._asdict(),
        "overrides": list(answer.overrides),
        "interrupted": answer.interrupted is not None,
        "provenance": {
            **digests.provenance(),
            **({"measured_sha256": samples.sha256} if samples is not None else {}),
        },
    }


def _total(total: Total | None) -> dict[str, Any] | None:
    """Throughput with parameters drawn; null where that was not asked for."""
    if total is None:
        return None
    return {
        "throughput_tok_s": _band(total.throughput_tok_s),
        "without_luck_tok_s": _band(total.without_luck),
        "draws": total.draws,
        "seed": total.seed,
        "parameters": total.parameters,
        "swings": [
            {
                "name": swing.name,
                "basis": swing.basis,
                "values": [_rounded(v) if isinstance(v, float) else v for v in swing.values],
                "tok_s": [_rounded(v) for v in swing.tok_s],
            }
            for swing in total.swings
        ],
    }


def _calibration(posterior: Posterior | None) -> dict[str, Any]:
    """What parameters were drawn from, where the scenario names a calibration."""
    if posterior is None:
        return {}
    seen = [one._asdict() for one in posterior.observations]
    where = {} if posterior.stored is None else posterior.stored._asdict()
    known = {"effective_sample_size": posterior.effective_sample_size, "measurements": seen}
    return {"calibration": {**where, **known}}


def _band(band: Band) -> dict[str, float]:
    return {key: _rounded(value) for key, value in asdict(band).items()}


def summary_fields(summary: Summary) -> dict[str, Any]:
    """What every simulated scenario answers, alone or as a cell of a sweep."""
    return {
        "throughput_tok_s": _spread(summary.throughput_tok_s),
        "step_time_ms": _spread(summary.step_time_ms),
        "acceptance_length": _spread(summary.acceptance_length),
        **(_latencies(summary) if summary.requests > 1 else {}),
        "acceptance_histogram": {str(n): share for n, share in enumerate(summary.length_shares, 1)},
        "breakdown": _all_shares(Component, summary.components),
        "phases": _all_shares(Phase, summary.phases),
        "sources": {s.name: summary.sources.get(s, 0.0) for s in Source},
        **({"measured_files": summary.measured_files} if summary.measured_files else {}),
        "utilisation": {str(lane): _rounded(v) for lane, v in summary.utilisation.items()},
        "allreduce_ms": {
            "wait": _rounded(summary.allreduce_wait_ms),
            "transfer": _rounded(summary.allreduce_transfer_ms),
        },
        "runs": summary.runs,
        "steps": summary.steps,
    }


def _latencies(summary: Summary) -> dict[str, Any]:
    """What users of a batch see."""
    tpot_ms = summary.tpot_tail_ms
    return {
        "user_tok_s": _spread(summary.user_tok_s),
        "request_tok_s": _spread(summary.request_tok_s),
        "tpot_ms": _spread(summary.tpot_ms) | {"p99": _rounded(tpot_ms.p99)},
        "itl_ms": {key: _rounded(value) for key, value in asdict(summary.itl_ms).items()},
    }


def _batch(setup: Setup) -> dict[str, Any]:
    """How much of the load decodes together; nothing where it is one request."""
    asked = setup.scenario.load.concurrency
    if asked == 1:
        return {}
    return {
        "batch": {
            "concurrency": asked,
            "decoded_together": setup.requests,
            "capacity_limited": setup.capacity_limited,
            "captured_requests": setup.requests + setup.verify_padding
            if setup.verify_launch is LaunchMode.GRAPH
            else None,
            "cache_blocks": setup.capacity.blocks,
            "cache_blocks_per_request": setup.capacity.per_request,
            "ramp_up_and_drain": "excluded",
        }
    }


def _all_shares(kinds: type[Enum], shares: dict[Any, float]) -> dict[str, float]:
    """A share for every kind, 0 where it never was on the critical path."""
    return {kind.name.lower(): shares.get(kind, 0.0) for kind in kinds}


def _spread(value: Spread) -> dict[str, float | None]:
    return {key: None if v is None else _rounded(v) for key, v in asdict(value).items()}


def _rounded(value: float) -> float:
    """Digits beyond these would depend on the order of summation."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _anchor(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    anchor = comparison.anchor
    unexplained = comparison.unexplained_ms
    return {
        "published_tok_s": anchor.published_tok_s,
        "published_range_tok_s": anchor.tok_s_range,
        "predicted_tok_s": _rounded(comparison.predicted_tok_s),
        "error": _rounded(comparison.error),
        "unexplained_step_ms": None if unexplained is None else _rounded(unexplained),
        "source": anchor.source,
    }


def _explanation(explanation: Explanation | None) -> dict[str, Any]:
    """Nothing where the scenario names no other that it is slower than."""
    if explanation is None:
        return {}
    return {
        "regression": {
            "since": explanation.since,
            "since_tok_s": _rounded(explanation.since_tok_s),
            "since_published_tok_s": explanation.since_published_tok_s,
            "tok_s": _rounded(explanation.tok_s),
            "causes": [
                {
                    "name": cause.name,
                    "alone_tok_s": _rounded(cause.alone_tok_s),
                    "log_change": _rounded(cause.log_change),
                }
                for cause in explanation.causes
            ],
            "candidates": [
                {"name": candidate.name, "tok_s": _rounded(candidate.tok_s)}
                for candidate in explanation.candidates
            ],
        }
    }


def write(answer: Answer, report: list[str], folder: Path) -> None:
    """Write every file of *answer* into *folder*."""
    files.replace(folder / "summary.json", files.as_json(summary_object(answer)) + "\n")
    files.replace(folder / "report.txt", "\n".join(report) + "\n")
    resolved = json.dumps(as_file_in(answer.setup.scenario, folder), indent=2, ensure_ascii=False)
    files.replace(folder / "scenario.json", resolved + "\n")
    files.replace(folder / "runs.csv", files.csv_text(RUN_COLUMNS, _run_rows(answer)))
    files.replace(
        folder / "steps.csv", files.csv_text(step_columns(answer.summary.requests), _step_rows(answer))
    )
    files.replace(folder / "costs.csv", files.csv_text(COST_COLUMNS, _cost_rows(answer)))


RUN_COLUMNS = ("run", "steps", "tokens", "duration_ns", "throughput_tok_s")
TIME_COLUMNS = ("step_ns", *(f"critical_{component.name.lower()}_ns" for component in Component))
COST_COLUMNS = (
    "component",
    "phase",
    "per_step_and_rank",
    "mean_us",
    "spread",
    "source",
    "bound",
    "work",
    "evidence",
)


def _run_rows(answer: Answer) -> Iterable[Sequence[object]]:
    for run in answer.experiment.runs:
        yield run.index, run.steps, run.tokens, run.duration_ns, _rounded(run.throughput_tok_s)


def step_columns(requests: int) -> tuple[str, ...]:
    """Columns of ``steps.csv``; with one request the tokens of a step are its acceptance length."""
    tokens = "acceptance_length" if requests == 1 else "tokens"
    return ("run", "step", "context_tokens", tokens, *TIME_COLUMNS)


def _step_rows(answer: Answer) -> Iterable[Sequence[object]]:
    """The steps of the first runs; the others were not kept step by step."""
    for run in answer.experiment.in_full:
        steps = run.steps
        tokens = steps.lengths.sum(axis=1)
        columns = (steps.contexts, tokens, steps.step_ns, *steps.component_ns.T)
        for i, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            yield run.index, i, *row


class StepCost(NamedTuple):
    """A piece of work of a step, as one rank meets it."""

    op: Op
    """The first that does it."""
    times: int
    estimate: Estimate


def step_costs(answer: Answer) -> list[StepCost]:
    """Every distinct piece of work of a step at the start context."""
    seen: dict[tuple[Component, Phase, object], int] = {}
    for op in answer.graph.ops:
        if op.rank in (None, 0):
            key = (op.component, op.phase, op.work)
            seen[key] = seen.get(key, 0) + 1
    found = []
    for op in answer.graph.ops:
        times = seen.pop((op.component, op.phase, op.work), None)
        if times is not None:
            found.append(StepCost(op, times, answer.setup.costs.estimate(op.work)))
    return found


def _cost_rows(answer: Answer) -> Iterable[Sequence[object]]:
    for op, times, cost in step_costs(answer):
        yield (
            op.component.value,
            op.phase.value,
            times,
            _rounded(cost.seconds * 1e6),
            _rounded(cost.spread),
            cost.source.name,
            cost.bound.value,
            op.work,
            cost.evidence,
        )
