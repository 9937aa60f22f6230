"""Published measurements teach what is not known: calibration, and what it changes in a prediction."""
