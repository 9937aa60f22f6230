"""Choices that the command line offers; nothing heavy is imported here."""

from __future__ import annotations

from enum import StrEnum


class EngineName(StrEnum):
    """Engines that can play a step graph, to the same nanosecond."""

    SIMPY = "simpy"
    BATCH = "batch"
