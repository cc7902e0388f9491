"""How likely one of k attempts at a problem succeeds, from n attempts of which c did.

Pure functions on records.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from repl_rl.runs.summary import is_solved
from repl_rl.types import Scored


def pass_at(k: int, *, num_samples: int, num_solved: int) -> float:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    It is the share of the choices of k among the n samples that hold a solved one. `k` <= n.
    Example: of n = 4 samples c = 1 is solved; of the 6 pairs 3 hold it, so k = 2 gives 0.5.
    """
    assert 1 <= k <= num_samples
    return 1.0 - math.comb(num_samples - num_solved, k) / math.comb(num_samples, k)


def pass_rates(scored: Sequence[Scored], samples: int) -> dict[int, float]:
    """Means over problems, of `samples` attempts each, by k: 1, 2, 4, ... and `samples`.

    An attempt that could not be graded counts as not solved.
    """
    num_solved: dict[int, int] = defaultdict(int)
    for item in scored:
        num_solved[item.trajectory.group_index] += is_solved(item)
    if not num_solved:
        return {}
    sizes = sorted({samples, *(1 << power for power in range(samples.bit_length()))})
    return {
        k: statistics.fmean(
            pass_at(k, num_samples=samples, num_solved=solved) for solved in num_solved.values()
        )
        for k in sizes
        if k <= samples
    }
