"""Acceptance logs of real engines: read them, fit the acceptance model, say how well it fits."""
