"""Hypothesis profiles: ``dev`` is quick, ``ci`` digs deeper and repeats itself exactly.

``first`` stops at the first failure found and does not look for a simpler one.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile("dev", max_examples=40, deadline=None, suppress_health_check=SLOW_IS_FINE)
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=SLOW_IS_FINE,
)
settings.register_profile(
    "first", parent=settings.get_profile("dev"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
