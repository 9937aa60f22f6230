"""Levers: what throughput would be if something were better, by playing the steps again."""
