"""Under memory rows that bind: price the bytes, solve without rows, and fuse the answers.

Rows make an exact search hard and its bounds weak, and folded layers can only change all together, in large steps of
memory. With a price per byte instead of a row the fold is again solved in milliseconds. A ladder of prices gives a few
choices on either side of the limit; *fusion* then lets every node of the unfolded problem pick among its options in
them, so that some layers may take the fast choice and others the small one, within the rows.
"""

from __future__ import annotations

import numpy as np

from sbpjax.search.exact import by_highs, exact
from sbpjax.search.network import NO_USAGE, Network
from sbpjax.search.pool import Floats
from sbpjax.search.reduce import reduce, restore, restrict

DOUBLINGS = 24
BISECTIONS = 6
TIMID = 1e-4  # the first price of a row that the relaxation thinks is free, as a share of what would decide everything
MIXED_GAP = 1e-3  # of a mixture; what is left of it is below what the folds leave

Choice = dict[int, int]


def priced(network: Network, prices: Floats) -> Network:
    """The network without memory rows, with a price in seconds on each of their bytes."""
    pool, costs = network.pool, dict(network.costs)
    for node, usage in network.usages.items():
        if usage != NO_USAGE:
            costs[node] = pool.vector(pool.values(costs[node]) + prices @ pool.values(usage))
    links = {node: dict(others) for node, others in network.links.items()}
    usages = dict.fromkeys(costs, NO_USAGE)
    constant = network.constant - float(prices @ network.limits)
    return Network(pool, costs, links, usages, np.zeros(0), network.kinds, constant)


def ladder(network: Network, prices: Floats, seconds: float, backtracks: int) -> list[Choice]:
    """Choices at rising prices, from too large to just within the rows, the one that fits best last.

    Args:
        network: with memory rows.
        prices: a first guess of the price of a byte in each row.
        seconds: about what a choice costs, for rows without a guess.
        backtracks: of each exact search.
    """
    first = np.maximum(prices, TIMID * seconds / np.maximum(np.abs(network.limits), 1.0))

    def at(factor: float) -> Choice | None:
        free = priced(network, first * factor)
        steps = reduce(free)
        choice = exact(free, backtracks, 0).choice
        if choice is None:
            return None
        choice = dict(choice)
        restore(free.pool, steps, choice)
        return choice

    found: list[Choice] = []
    low, high = 0.0, 1.0
    for _ in range(DOUBLINGS):
        choice = at(high)
        if choice is None:
            return found
        found.append(choice)
        if _fits(network, choice):
            break
        low, high = high, high * 2
    else:
        return found
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        choice = at(middle)
        if choice is None:
            break
        if _fits(network, choice):
            high = middle
            found.append(choice)
        else:
            low = middle
            found.insert(0, choice)
    return found


def _fits(network: Network, choice: Choice) -> bool:
    return bool((network.excess(choice) <= 0).all())


def fuse(network: Network, choices: list[Choice], mip_nodes: int) -> Choice | None:
    """The best mixture of several choices, node by node, that keeps the memory rows; None if none was found."""
    mixed = network.copy()
    steps = []
    for node in network.costs:
        keep = np.unique([choice[node] for choice in choices])
        steps.append(restrict(mixed, node, keep))
    steps += reduce(mixed)
    answer = by_highs(mixed, mip_nodes, MIXED_GAP) if mixed.costs else exact(mixed, 0, 0)
    if answer.choice is None:
        return None
    choice = dict(answer.choice)
    restore(network.pool, steps, choice)
    return choice
