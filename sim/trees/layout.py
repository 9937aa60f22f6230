"""Where the nodes of a draft tree are drawn: depth to the right, siblings below one another.

The first child of a node lies in its parent's row, so that the spine is straight in row 0 and
every chain of first choices is. The rows of a subtree go as far up as those drawn before it
allow, in every column by itself. In each column the nodes keep the order of their parents:
no two edges cross.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.ddtree import ROOT, Node

Outline = list[tuple[int, int]]
"""First and last row of a subtree in each column from its root's on, its root in row 0."""


def rows(nodes: Sequence[Node]) -> tuple[int, ...]:
    """The row of the root and of each of *nodes*, parents before children; 0 is the top one."""
    children = _children(nodes)
    below = [0] * len(children)
    outlines: list[Outline] = [[] for _ in children]
    for number in reversed(range(len(children))):
        outlines[number] = _stacked(children[number], outlines, below)
    found = [0] * len(children)
    for number, node in enumerate(nodes, 1):
        found[number] = found[node.parent] + below[number]
    return tuple(found)


def _children(nodes: Sequence[Node]) -> list[list[int]]:
    """The children of the root and of each node, likelier ones first."""
    children: list[list[int]] = [[] for _ in range(len(nodes) + 1)]
    for number, node in enumerate(nodes, ROOT + 1):
        children[node.parent].append(number)
    return children


def _stacked(numbers: list[int], outlines: list[Outline], below: list[int]) -> Outline:
    """The outline of a node over the subtrees *numbers*, whose rows *below* it are set here."""
    outline: Outline = [(0, 0)]
    for number in numbers:
        pairs = zip(outline[1:], outlines[number], strict=False)
        below[number] = max((last + 1 - first for (_, last), (first, _) in pairs), default=0)
        for column, (first, last) in enumerate(outlines[number], 1):
            moved = (first + below[number], last + below[number])
            if column < len(outline):
                outline[column] = (outline[column][0], moved[1])
            else:
                outline.append(moved)
    return outline
