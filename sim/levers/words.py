"""What is said of levers, in a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

from sim.levers.alternatives import Alternative, follows_from_tree
from sim.levers.drivers import Drivers
from sim.levers.effects import Effect
from sim.levers.kinds import Degree, Group, Lever
from sim.levers.played import RUNS, STEPS
from sim.levers.study import Study
from sim.report import drafting_line

DEGREE_NAMES = {Degree.TENTH: "10 %", Degree.HALF: "50 %", Degree.FREE: "free"}
SMALL_GAIN = 0.005
"""Gains below this are not worth a word."""
HIDDEN = 0.75
"""A lever whose gain is less than this share of Amdahl's bound is called overlapped."""
NO_BOUND = 1e4
"""A bound beyond this says that nothing else is on the critical path."""
ALIKE = 1.1
"""Two gains within this factor of one another are called alike."""
DEGREES_NOTE = (
    "10 or 50 % better: a time that much shorter, a bandwidth that much higher, the gap between mean"
    " acceptance length and the longest one closed by so much. Free: no time, endless bandwidth, all ranks in"
    " step, the longest length every time."
)
LUCK_NOTE = f"Means of {RUNS} runs of {STEPS} steps, played again with the same luck for every lever."
TRANSFER_NOTE = (
    "AllReduce latency is what the smallest message takes on the same GPUs, bandwidth what is left; both"
    " levers hold for the drafter's AllReduces too."
)
AMDAHL_NOTE = (
    "Amdahl: the critical path without what is free, and nothing else in the way; elasticity: per cent of"
    " throughput for a per cent better. HBM bandwidth is a GPU's achieved and peak bandwidth together."
)
FAIR_NOTE = (
    "fair: the mean over all orders in which they may be made (Shapley), so that these multiply to the whole;"
    " brackets: both ends of the range of acceptance lengths. What they cost is not in it."
)


def head(study: Study, letter: str) -> list[str]:
    """The question, the machine, and throughput as it is; *letter* stands before it."""
    setup, base = study.setup, study.base
    machine = setup.machine
    requests = "" if setup.requests == 1 else f"{setup.requests} x "
    return [
        f"{letter}{setup.scenario.question}",
        f"{study.name}: {machine.ranks}x {machine.gpu.name}, {machine.interconnect.name},"
        f" {machine.host.name}, {machine.stack.name}; {setup.model.name}; {drafting_line(setup)}",
        f"{base.tok_s:.1f} tok/s = {requests}{base.mean_length:.2f} tokens / {base.step_s * 1e3:.2f} ms",
    ]


def value(drawn: object) -> str:
    """A drawn value, in few digits where it is a number."""
    return f"{drawn:.4g}" if isinstance(drawn, float) else str(drawn)


def in_order(studies: Sequence[Study]) -> list[Lever | None]:
    """Levers group by group, the largest first by the first scenario that has it; None between groups."""
    found: list[Lever | None] = []
    for group in Group:
        own = [lever for lever in Lever if lever.group is group and any(s.effect(lever) for s in studies)]
        found += [*([None] if found else []), *sorted(own, key=lambda lever: -_largest(studies, lever))]
    return found


def _largest(studies: Sequence[Study], lever: Lever) -> float:
    for study in studies:
        effect = study.effect(lever)
        if effect is not None:
            return effect.tok_s[Degree.FREE] / study.base.tok_s
    return 0.0


def share(effect: Effect) -> str:
    """Of the critical path; nothing where no time on it is the lever's."""
    return "" if effect.share is None else per_cent(effect.share)


def gain(study: Study, effect: Effect, degree: Degree) -> str:
    """Change of throughput where the lever is better by *degree*."""
    return change(effect.tok_s[degree] / study.base.tok_s)


def bound(study: Study, effect: Effect) -> str:
    """Amdahl's, with the lever free."""
    if effect.bound_tok_s is None:
        return ""
    ratio = effect.bound_tok_s[Degree.FREE] / study.base.tok_s
    return "no bound" if ratio > NO_BOUND else change(ratio)


def per_cent(value: float) -> str:
    """A share with one decimal, never -0.0."""
    return f"{abs(value) if abs(value) < 0.0005 else value:.1%}".replace("%", " %")


def change(ratio: float) -> str:
    """A ratio of throughputs as a change; as a factor from 10 on."""
    if ratio >= 10:
        return f"x{ratio:.1f}"
    value = ratio - 1
    return f"{0.0 if abs(value) < 0.0005 else value:+.1%}".replace("%", " %")


def overhead(study: Study) -> list[str]:
    """Whether overhead dominates: the host against the experts, and the articles' own count."""
    host, experts, rest = (study.effect(lever) for lever in (Lever.HOST, Lever.EXPERTS, Lever.REST))
    if host is None or experts is None or rest is None:
        return []
    counted = ", ".join(
        f"{name} {per_cent(effect.share or 0.0)} ({gain(study, effect, Degree.FREE)} if free)"
        for name, effect in (
            ("all host work", host),
            ("the routed experts", experts),
            ("all but the experts", rest),
        )
    )
    verdicts = f"{_weighed(study, host, experts)} {_sentence(dominates(host, rest))}"
    return [f"{study.name}: of the step {counted}. {verdicts}"]


def _weighed(study: Study, host: Effect, experts: Effect) -> str:
    """Which of the two brings more when free."""
    of_host, of_experts = (log(effect.tok_s[Degree.FREE] / study.base.tok_s) for effect in (host, experts))
    if of_host > ALIKE * of_experts:
        return "The host weighs more than the experts."
    if of_experts > ALIKE * of_host:
        return "The experts weigh more than the host."
    return "Host and experts weigh about the same."


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def dominates(host: Effect, rest: Effect) -> str:
    """Whether overhead is more than half of the step, counted as host work, or as the articles do."""
    if (host.share or 0.0) > 0.5:
        return "overhead dominates, host work alone"
    if (rest.share or 0.0) > 0.5:
        return "overhead dominates as the articles count it, all but the experts, but not as host work"
    return "overhead does not dominate, however it is counted"


def overlapped(study: Study) -> list[str]:
    """Levers that others run beside: the critical path promises more than there is."""
    base, found = study.base.tok_s, []
    for effect in study.effects:
        if effect.bound_tok_s is None or effect.lever.group is Group.TOGETHER:
            continue
        promised = effect.bound_tok_s[Degree.FREE] / base - 1
        gained = effect.gain(Degree.FREE, base)
        if promised > SMALL_GAIN and gained < HIDDEN * promised:
            found.append(f"{effect.lever.value} {change(1 + gained)} of {change(1 + promised)}")
    return [f"{study.name}: overlap takes back what Amdahl promises for {', '.join(found)}."] if found else []


def choice_keys(studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Kind and name of every choice that can be simulated somewhere, those of a kind together."""
    names = dict.fromkeys(
        (alternative.choice.kind, alternative.choice.name)
        for study in studies
        for alternative in study.alternatives
        if alternative.tok_s is not None
    )
    kinds = list(dict.fromkeys(kind for kind, _ in names))
    return sorted(names, key=lambda key: kinds.index(key[0]))


def chosen(study: Study, key: tuple[str, str]) -> Alternative | None:
    """What the choice of this kind and name does to *study*; None where it has no such choice."""
    return next((a for a in study.alternatives if (a.choice.kind, a.choice.name) == key), None)


def impossible(study: Study, named: bool) -> list[str]:
    """Choices that cannot be simulated, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for alternative in study.alternatives:
        if alternative.tok_s is None:
            reason = "no room in memory" if "needs" in alternative.problem else alternative.problem
            by_reason.setdefault(reason, []).append(alternative.choice.name.split(",")[0])
    where = f"{study.name}: " if named else ""
    return [f"{where}not possible: {', '.join(names)} ({reason})" for reason, names in by_reason.items()]


def drivers_note(found: Drivers) -> str:
    """What the indices mean, and how much of the variance they are about."""
    return (
        "Total Sobol indices: the share of throughput's variance that stays when all but this is known; of"
        f" {found.parameters} unknowns the {len(found.drivers)} that move it most alone hold"
        f" {per_cent(min(1.0, found.asked_share))} of it. tok/s are of the mean step, without noise."
    )


def notes(studies: Sequence[Study]) -> Iterator[str]:
    """What a reader must know about all numbers."""
    yield DEGREES_NOTE
    yield TRANSFER_NOTE
    yield AMDAHL_NOTE
    widest = max(effect.half_width for study in studies for effect in study.effects)
    yield f"What luck is left in these throughputs over the scenario's is {per_cent(widest)} or less (95 %)."
    if all(follows_from_tree(study.setup.scenario) for study in studies):
        yield "Other blocks and budgets land what a drafter of the same accuracy lands with them."
    else:
        yield "Other blocks and budgets are left out where acceptance does not follow from the tree."
