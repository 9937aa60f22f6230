"""Measured files and catalog GPUs, shown and set side by side."""
