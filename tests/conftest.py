"""Hypothesis profiles: ``dev`` is quick, ``ci`` digs deeper and repeats itself exactly."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("dev", max_examples=40, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.register_profile(
    "ci",
    max_examples=400,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=SLOW_IS_FINE,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
