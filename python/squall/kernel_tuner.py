"""Squall's search inside Kernel Tuner.

    from squall.kernel_tuner import SquallStrategy
    kernel_tuner.tune_kernel(..., strategy=SquallStrategy(), strategy_options={"max_fevals": 200})

Failures, caches, observers, metrics and verification stay Kernel Tuner's (1.5 or later).
"""

from __future__ import annotations

import sys
from typing import Any

from squall._search import Failed, Space, Study

#: Trials that a search without ``max_fevals`` expects.
_EXPECTED = 1000


class SquallStrategy:
    """An optimisation strategy of Kernel Tuner's: an object with ``tune``.

    ``strategy`` is one of ``squall.strategies()``, ``batch`` how many configurations are asked for
    at a time (more where Kernel Tuner's runner works in parallel).
    """

    def __init__(self, strategy: str | None = None, seed: int = 0, batch: int = 1) -> None:
        self.strategy, self.seed, self.batch = strategy, seed, batch

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[dict[str, Any]]:
        """Called by Kernel Tuner."""
        from kernel_tuner import util
        from kernel_tuner.strategies.common import CostFunc

        cost = CostFunc(searchspace, tuning_options, runner, scaling=False, snap=False)
        # The search space's values may be repeated in a user's list; they are one value here.
        parameters = {n: list(dict.fromkeys(v)) for n, v in searchspace.tune_params.items()}
        space = Space.of(parameters, searchspace.list)
        budget = getattr(tuning_options, "budget", None)
        left = budget.get_evaluations_remaining() if budget is not None else float("inf")
        trials = int(min(left if left != float("inf") else _EXPECTED, len(space)))
        study = Study(space, max(1, trials), self.seed, self.strategy)
        parallel = getattr(runner, "available_parallelism", lambda: 1)
        batch = max(self.batch, parallel())
        try:
            while asked := study.ask(batch):
                points = [tuple(c.values()) for c in asked]
                for configuration, value in zip(asked, cost.eval_all(points, False)):
                    failed = not value < sys.float_info.max
                    study.tell(configuration, Failed() if failed else value)
        except util.StopCriterionReached:
            pass
        return cost.results
