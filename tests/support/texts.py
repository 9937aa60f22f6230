"""Scenario files written on the spot."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sim.scenario import Scenario, load

GOOD = """\
question: A scenario that is right in every line?
gpu: b300_sxm
interconnect: nvlink5
host: xeon_dual
stack: sglang
drafter:
  block: 8
tree:
  budget: 8
acceptance:
  mean_length: 4.4
load:
  context_tokens: 2000
  output_tokens: 40
runs: 5
"""


def scenario_from(text: str, *overrides: str) -> Scenario:
    """The Scenario that the file *text* would be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, overrides)
