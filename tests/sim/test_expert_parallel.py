"""Expert parallelism: whole experts shared out over groups of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import small_setup, without_noise
from texts import GOOD, scenario_from

from hwmodels.errors import HardwareError
from hwmodels.expert_groups import busiest_group
from hwmodels.work import AllReduce, GroupedExperts
from sim.errors import ScenarioError
from sim.graph import StepGraph
from sim.setup import resolve
from sim.simulate import Simulation
from sim.step import decode_step


def experts_of(graph: StepGraph) -> GroupedExperts:
    [found] = {op.work for op in graph.ops if isinstance(op.work, GroupedExperts)}
    return found


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_a_rank_holds_whole_experts_of_its_group(ep: int) -> None:
    tensor, groups = (experts_of(decode_step(small_setup(f"experts.ep={n}"))) for n in (1, ep))
    assert groups.intermediate == ep * tensor.intermediate
    assert groups.touched == busiest_group(tensor.touched, tensor.experts, ep)
    assert (groups.groups, groups.tokens) == (ep, tensor.tokens)


def test_one_group_is_tensor_parallelism() -> None:
    assert decode_step(small_setup("experts.ep=1")).ops == decode_step(small_setup()).ops


def test_nothing_else_of_a_step_changes() -> None:
    def others(ep: int) -> list[object]:
        graph = decode_step(small_setup(f"experts.ep={ep}"))
        return [op._replace(work=None) if isinstance(op.work, GroupedExperts) else op for op in graph.ops]  # type: ignore[arg-type]

    assert others(8) == others(1)
    sums = [op for op in decode_step(small_setup("experts.ep=8")).ops if isinstance(op.work, AllReduce)]
    assert sums


def test_the_busiest_group_makes_few_tokens_slower_and_many_no_faster_than_their_bytes() -> None:
    for concurrency, worst in ((1, 2.5), (64, 1.2)):
        steps = [
            Simulation(
                without_noise(
                    small_setup(
                        f"experts.ep={ep}",
                        f"load.concurrency={concurrency}",
                        "tree.budget=0",
                        "acceptance={length: 1}",
                    )
                )
            )
            .run(0)
            .steps.step_ns.mean()
            for ep in (1, 8)
        ]
        assert steps[0] <= steps[1] < worst * steps[0]


def test_groups_must_fit_the_machine_and_the_model(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"experts.ep must divide the 4 GPUs, got 8"):
        scenario_from(GOOD, "gpus=4", "experts.ep=8")
    odd = tmp_path / "odd.yaml"
    odd.write_text("extends: kimi_k2_6.yaml\nname: odd\nexperts: {count: 380}\n", encoding="utf-8")
    with pytest.raises(HardwareError, match="380 experts do not make 8 equal groups"):
        resolve(scenario_from(GOOD, f"model={odd}", "experts.ep=8"))
