"""Choices that the command line offers; nothing heavy is imported here."""

from __future__ import annotations

from enum import StrEnum


class EngineName(StrEnum):
    """Engines that can play a step graph, to the same nanosecond."""

    SIMPY = "simpy"
    BATCH = "batch"


class Counts(StrEnum):
    """What the lengths of a file count."""

    WITH_TARGET = "with-target"
    """Tokens that a step commits, the target's own included: 1 or more."""
    DRAFTED_ONLY = "drafted-only"
    """Drafted tokens that were accepted: 0 or more."""


class Definition(StrEnum):
    """What SGLang's accept rate is a share of: k drafted tokens, L committed ones a step."""

    PER_DRAFTED = "per-drafted"
    """(L - 1) / k."""
    PER_VERIFIED = "per-verified"
    """L / (k + 1)."""
    PER_COMMITTED = "per-committed"
    """(L - 1) / L."""


class Shape(StrEnum):
    """How drafted tokens hang together."""

    DDTREE = "ddtree"
    """The most probable prefixes."""
    CHAIN = "chain"
    """First choices alone."""
    EAGLE = "eagle"
    """The best of a beam: at every depth its best prefixes are kept and given as many choices each."""
