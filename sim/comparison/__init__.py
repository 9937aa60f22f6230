"""Scenarios against one another: how much faster, how sure, and where the difference arises."""
