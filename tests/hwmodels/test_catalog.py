"""The shipped catalog: complete, sourced, found by name, and strict when edited."""
