"""A trace shows every op where an engine played it, and adds up to the records."""

from __future__ import annotations

import gzip
import json
import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path

import oracle
import pytest
import traces
from builders import small_setup
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PiecesCase, tied_pieces, untied_pieces
from traces import Slice, Trace

from hwmodels.estimate import Source
from hwmodels.work import LinkWork
from sim.choices import EngineName
from sim.op_steps import OpStep, op_steps, steps_of
from sim.records import Run
from sim.simulate import Simulation
from sim.tracing import chosen, file
from sim.tracing.events import Events

SCENARIOS = {
    "tree": (),
    "tree on the GPU": ("tree.builder=gpu",),
    "eager": ("tree.budget=9",),
    "plain": ("tree.budget=0", "acceptance={length: 1}", "load.concurrency=4"),
    "one rank": ("gpus=1",),
    "two ranks": ("gpus=2",),
    "native": ("stack=native",),
    "two streams": ("model=kimi_k2_6_nvfp4",),
    "prefill": ("load.concurrency=2", "load.prefill=true"),
}
any_scenario = pytest.mark.parametrize("name", SCENARIOS)
STEPS = range(1, 4)


@cache
def simulation(name: str = "tree") -> Simulation:
    return Simulation(small_setup(*SCENARIOS[name]))


@cache
def run(name: str) -> Run:
    return simulation(name).run(0)


def trace_of(name: str, steps: range) -> Trace:
    found = simulation(name)
    events = Events(found.pieces, found.base.sources(), 0)
    shown = [*events.names(), *(e for step in op_steps(found, 0, steps) for e in events.of_step(step))]
    return traces.read(traces.in_memory(shown))


@cache
def trace(name: str) -> Trace:
    return trace_of(name, STEPS)


@cache
def whole_trace() -> Trace:
    return trace_of("tree", range(steps_of(simulation(), 0)))


def written(path: Path, name: str = "tree", engine: EngineName = EngineName.BATCH) -> bytes:
    file.write(simulation(name), STEPS, path, engine)
    return path.read_bytes()


def of_case(case: PiecesCase) -> tuple[list[OpStep], Trace]:
    """Steps of random pieces, one after the other, and the trace of them."""
    pieces, mean, durations = case
    ops = pieces.split(durations, mean)
    end, begin_ns, steps = oracle.play(pieces.fusion.graph, ops), 0, []
    for at in range(len(ops)):
        steps.append(OpStep(at, begin_ns, 1, 1000, mean.label_s[at], ops[at], end[at]))
        begin_ns += steps[-1].step_ns
    sources = tuple(list(Source)[at % len(Source)] for at in range(len(pieces.labels)))
    events = Events(pieces, sources, 0)
    shown = [*events.names(), *(event for step in steps for event in events.of_step(step))]
    return steps, traces.read(traces.in_memory(shown))


def by_thread(found: Trace) -> dict[int, list[Slice]]:
    slices: dict[int, list[Slice]] = {tid: [] for tid in found.threads}
    for each in found.slices:
        slices[each.tid].append(each)
    return slices


def assert_laws(found: Trace) -> None:
    """What holds in every trace: threads do one thing at a time, inside the steps; flows go forward."""
    for slices in by_thread(found).values():
        assert all(before.end <= after.start for before, after in pairwise(slices))
    assert all(before.end == after.start for before, after in pairwise(found.steps))
    first, last = found.steps[0].start, found.steps[-1].end
    assert all(first <= op.start and op.end <= last for op in found.ops)
    for source, target, left, arrived in found.arrows:
        assert source.tid != target.tid
        assert source.start <= left <= max(source.start, source.end - 1)
        assert source.end <= target.start == arrived


@given(tied_pieces() | untied_pieces())
def test_a_trace_of_any_graph_shows_each_op_on_its_lanes_when_it_ran(case: PiecesCase) -> None:
    graph = case[0].fusion.graph
    steps, found = of_case(case)
    assert_laws(found)
    expected = []
    for step in steps:
        for op, start, end in zip(graph.ops, step.start.tolist(), step.end.tolist(), strict=True):
            names = [graph.lanes[lane] for lane in op.lanes]
            expected += [(step.begin_ns + start, step.begin_ns + end, *name) for name in names]
    shown = [(op.start, op.end, *found.threads[op.tid]) for op in found.ops]
    assert sorted(shown) == sorted(expected)


@given(tied_pieces() | untied_pieces())
def test_arrows_are_the_dependencies_that_no_lane_keeps(case: PiecesCase) -> None:
    graph = case[0].fusion.graph
    steps, found = of_case(case)
    waits = [
        (step.begin_ns + int(step.end[dep]), step.begin_ns + int(step.start[index]))
        for step in steps
        for index, op in enumerate(graph.ops)
        for dep in op.after
        if not set(graph.ops[dep].lanes) & set(op.lanes)
    ]
    assert sorted((arrow.source.end, arrow.target.start) for arrow in found.arrows) == sorted(waits)


@given(tied_pieces() | untied_pieces())
def test_counters_hold_the_time_of_the_lanes_and_the_bytes_of_the_messages(case: PiecesCase) -> None:
    steps, found = of_case(case)
    assert_counters_add_up(found)
    graph = case[0].fusion.graph
    carried = {name: 0.0 for name, _ in found.threads.values()}
    for lane in Events(case[0], (Source.ASSUMED,) * len(case[0].labels), 0).layout.links:
        sizes = [(op, graph.ops[op].work) for op in graph.queues[lane]]
        for step in steps:
            carried[graph.lanes[lane].device] += sum(
                work.size_bytes for op, work in sizes if isinstance(work, LinkWork) and step.durations[op]
            )
    for (pid, name), changes in found.counters.items():
        if name.startswith("payload"):
            assert traces.under(changes) == pytest.approx(carried[process(found, pid)])
            assert changes[-1][1] == 0


def process(found: Trace, pid: int) -> str:
    tid = next(each.tid for each in found.slices if each.event["pid"] == pid)
    return found.threads[tid][0]


def assert_counters_add_up(found: Trace) -> None:
    """On every device the lanes that are busy, over time, are the slices of its lanes."""
    held: dict[int, int] = {}
    for op in found.ops:
        held[op.event["pid"]] = held.get(op.event["pid"], 0) + op.end - op.start
    counted = {pid: traces.under(found.counters[pid, "lanes busy lanes"]) for pid in held}
    assert counted == held


@any_scenario
def test_lanes_are_held_as_long_as_the_records_say(name: str) -> None:
    records, found = run(name).steps, trace(name)
    assert_laws(found)
    for lane, busy in zip(simulation(name).graph.lanes, records.busy_ns[STEPS].sum(axis=0), strict=True):
        assert sum(op.end - op.start for op in found.on(*lane)) == busy, lane
    assert_counters_add_up(found)


@any_scenario
def test_the_chosen_steps_are_there_when_the_run_had_them_and_no_others(name: str) -> None:
    records = run(name).steps
    begins = records.step_ns.cumsum() - records.step_ns
    shown = [(step.start, step.end - step.start, step.event["args"]) for step in trace(name).steps]
    assert shown == [
        (
            begins[at],
            records.step_ns[at],
            {"step": at, "tokens": records.lengths[at].sum(), "context_tokens": records.contexts[at]},
        )
        for at in STEPS
    ]


@any_scenario
def test_both_engines_leave_the_same_bytes(name: str, tmp_path: Path) -> None:
    batch, simpy = (written(tmp_path / f"{e.value}.json", name, e) for e in EngineName)
    assert batch == simpy


@any_scenario
def test_every_kernel_says_what_it_is_and_what_its_time_rests_on(name: str) -> None:
    found, parts = trace(name), simulation(name)
    estimates = {label: parts.setup.costs.estimate(label.work) for label in parts.pieces.labels}
    expected = {(label.component.value, label.phase.value) for label in estimates}
    assert {(op.event["args"]["component"], op.event["args"]["phase"]) for op in found.ops} == expected
    assert {op.event["args"]["source"] for op in found.ops} == {e.source.name for e in estimates.values()}
    for op in found.ops:
        assert op.event["cat"] == op.event["args"]["component"]
        assert op.event["args"]["work"]["kind"].lower().startswith(op.event["name"].split()[0].strip(":"))
        assert op.event["args"]["mean_us"] >= 0


def test_attention_is_shown_with_the_context_of_its_step() -> None:
    shown = {
        (step.event["args"]["context_tokens"], op.event["args"]["work"]["context"])
        for step in trace("tree").steps
        for op in trace("tree").ops
        if op.event["args"]["work"]["kind"] == "MlaAttention" and step.start <= op.start < step.end
    }
    assert len(shown) == len(STEPS)
    assert all(of_step == of_kernel for of_step, of_kernel in shown)


@settings(max_examples=25)
@given(st.data())
def test_any_steps_are_shown_as_among_all(data: st.DataObject) -> None:
    available = steps_of(simulation(), 0)
    first = data.draw(st.integers(0, available - 1))
    steps = range(first, data.draw(st.integers(first + 1, available)))
    everything, some = whole_trace(), trace_of("tree", steps)
    since, until = some.steps[0].start, some.steps[-1].end
    assert [step.event["args"]["step"] for step in some.steps] == list(steps)
    among = [(s.tid, s.start, s.end) for s in everything.slices if since <= s.start < until]
    assert [(s.tid, s.start, s.end) for s in some.slices] == among
    arrows = [(a.left, a.arrived) for a in everything.arrows if since <= a.left < until]
    assert [(a.left, a.arrived) for a in some.arrows] == arrows


def test_a_packed_trace_holds_the_same_text_and_always_the_same_bytes(tmp_path: Path) -> None:
    plain, packed = written(tmp_path / "trace.json"), written(tmp_path / "trace.json.gz")
    assert gzip.decompress(packed) == plain
    assert written(tmp_path / "again.gz") == packed


def test_what_was_traced_is_written_beside_the_events(tmp_path: Path) -> None:
    about = json.loads(written(tmp_path / "trace.json"))["otherData"]
    assert (about["run"], about["steps"], about["seed"]) == (0, [1, 4], simulation().setup.scenario.seed)


def test_a_trace_that_is_interrupted_leaves_what_was_there(tmp_path: Path) -> None:
    path, steps = tmp_path / "trace.json", iter(range(2))

    def interrupted() -> None:
        if next(steps) == 1:
            raise KeyboardInterrupt

    path.write_text("the one before")
    with pytest.raises(KeyboardInterrupt):
        file.write(simulation(), STEPS, path, advance=interrupted)
    assert path.read_text() == "the one before"
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [("0:4", range(4)), ("7", range(7, 8)), (" 2:3 ", range(2, 3)), ("10:12", range(10, 12))],
)
def test_steps_are_read(text: str, steps: range) -> None:
    assert chosen.parse(text) == steps


@pytest.mark.parametrize("text", ["", "x", "1:", ":4", "-1", "1-4", "1:2:3", "1.5", "٣"])
def test_what_names_no_steps_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no FIRST:STOP"):
        chosen.parse(text)


@pytest.mark.parametrize("text", ["3:3", "4:2"])
def test_no_steps_at_all_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text} has no step"):
        chosen.parse(text)


def test_steps_that_the_run_lacks_are_refused_but_the_default_takes_what_there_is() -> None:
    assert chosen.of_run(None, 3) == range(3)
    assert chosen.of_run(None, 30) == range(4)
    assert chosen.of_run("28:30", 30) == range(28, 30)
    with pytest.raises(ValueError, match="the run has 30 steps, 0:30"):
        chosen.of_run("28:31", 30)


def test_the_trace_processor_of_perfetto_reads_the_same(tmp_path: Path) -> None:
    api = pytest.importorskip("perfetto.trace_processor", reason="the package perfetto is not installed")
    program = shutil.which("trace_processor_shell")
    if program is None:
        pytest.skip(
            "trace_processor_shell, Perfetto's program, is not on PATH; PyPI's package does not bring it"
        )
    written(tmp_path / "trace.json.gz")
    with api.TraceProcessor(
        trace=str(tmp_path / "trace.json.gz"), config=api.TraceProcessorConfig(bin_path=program)
    ) as processor:
        query = (
            "select thread.tid, slice.ts, slice.dur, depth from slice join thread_track t on track_id = t.id"
        )
        rows = list(processor.query(f"{query} join thread using (utid)"))
        (flows,) = processor.query("select count(*) as count from flow")
        (lost,) = processor.query("select sum(value) as count from stats where severity != 'info'")
    found = trace("tree")
    expected = sorted((each.tid, each.start, each.end - each.start) for each in found.slices)
    assert sorted((row.tid, row.ts, row.dur) for row in rows) == expected
    assert {row.depth for row in rows} == {0}
    assert (flows.count, lost.count) == (len(found.arrows), 0)
