"""``python -m cuda.measure``: time this machine's kernels into a measured file."""

from __future__ import annotations

from cuda.cli import main

if __name__ == "__main__":
    main()
