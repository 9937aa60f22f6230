"""Discrete-event simulation of multi-GPU speculative decoding."""

__version__ = "0.1.0"
