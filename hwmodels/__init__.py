"""What a device can be asked to do, and what that costs.

The vocabulary of work, the hardware catalog, measured latency tables, fits,
collective formulas, the roofline and the noise model.
"""
