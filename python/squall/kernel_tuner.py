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
        higher_is_better = _one_objective(tuning_options)
        try:
            while asked := study.ask(batch):
                points = [tuple(c.values()) for c in asked]
                for configuration, value in zip(asked, cost.eval_all(points, False)):
                    study.tell(configuration, _outcome(value, higher_is_better))
        except util.StopCriterionReached:
            pass
        return cost.results


def _one_objective(tuning_options: Any) -> bool:
    """Whether the objective is to be large; several are refused."""
    said = tuning_options.objective_higher_is_better
    directions = list(said) if isinstance(said, (list, tuple)) else [said]
    if len(directions) != 1:
        raise ValueError(
            f"SquallStrategy has one objective, not {len(directions)}: choose one with `objective=`"
        )
    return bool(directions[0])


def _outcome(cost: float, higher_is_better: bool) -> float | Failed:
    """Kernel Tuner's cost, of which less is better, as a study takes it: above 0."""
    if not cost < sys.float_info.max:
        return Failed()
    if higher_is_better:
        # The inverse of a rate is what a time would be; no rate at all is worse than any.
        return -1.0 / cost if cost < 0 else sys.float_info.max / 2
    # What is 0 or less is no time: it comes before all that are, in order.
    return cost if cost > 0 else 1e-30 / (1.0 - cost)
