"""Sweeps: grids of scenarios, run anywhere, stored as they finish, compared on common luck."""
