"""Squall's search inside Optuna, for spaces of listed values with restrictions.

    from squall.optuna import SquallSampler
    space = squall.Space({"block": [16, 32, 64], "unroll": [1, 2, 4]}, ["block * unroll <= 128"])
    study = optuna.create_study(sampler=SquallSampler(space, trials=100))
    study.optimize(objective, n_trials=100)

The objective suggests the space's parameters by their names, each with ``suggest_categorical``, or
``suggest_int`` where its values are a range of whole numbers. Everything else is refused: floats
over an interval, parameters that depend on others, several objectives.
"""

from __future__ import annotations

import threading
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from squall._search import Failed, Space, Study


class SquallSampler(BaseSampler):
    """Proposes legal configurations only, none twice, and learns from failures too.

    ``trials`` is how many the study means to make. Once every configuration was tried, the best is
    proposed again.
    """

    def __init__(
        self, space: Space, trials: int = 100, seed: int = 0, strategy: str | None = None
    ) -> None:
        self.space = space
        self._make = lambda: Study(space, trials, seed, strategy)
        self._study = self._make()
        self._signed = False
        self._values: list[tuple[dict[str, Any], float | Failed]] = []
        self._lock = threading.Lock()

    def infer_relative_search_space(
        self, study: Any, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if len(study.directions) != 1:
            raise ValueError("SquallSampler has one objective; this study has several")
        return {name: _distribution(values) for name, values in self.space.parameters.items()}

    def sample_relative(
        self, study: Any, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        with self._lock:
            asked = self._study.ask(1)
            if asked:
                return asked[0]
            best = self._study.best
            return best[0] if best else self.space.sample(1)[0]

    def sample_independent(
        self, study: Any, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._check(param_name, param_distribution)
        raise ValueError(f"parameter {param_name!r} was suggested before the sampler knew it")

    def _check(self, name: str, distribution: BaseDistribution) -> None:
        """Refuses what is not the space's own parameter."""
        if name not in self.space.parameters:
            known = ", ".join(self.space.parameters)
            raise ValueError(
                f"parameter {name!r} is not in the sampler's space ({known}): add it there, or use"
                " another sampler for spaces that are not listed"
            )
        expected = _distribution(self.space.parameters[name])
        if distribution != expected:
            raise ValueError(
                f"parameter {name!r} is suggested as {distribution}, but the sampler's space has it"
                f" as {expected}: suggest just these values"
            )

    def after_trial(
        self, study: Any, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        for name, distribution in trial.distributions.items():
            self._check(name, distribution)
        configuration = {n: trial.params[n] for n in self.space.parameters if n in trial.params}
        if configuration not in self.space:
            return
        outcome: float | Failed = Failed("launch", state.name.lower())
        if state == TrialState.COMPLETE and values:
            outcome = float(values[0])
        with self._lock:
            self._values.append((configuration, outcome))
            if not self._signed and not isinstance(outcome, Failed) and outcome <= 0:
                # Squall's costs are above 0: from the first value that is not, all are mapped.
                self._signed, self._study = True, self._make()
                told = self._values
            else:
                told = self._values[-1:]
            for known, value in told:
                self._study.tell(known, self._cost(value, study.direction))

    def _cost(self, value: float | Failed, direction: Any) -> float | Failed:
        """A value as a cost above 0, of which less is better."""
        if isinstance(value, Failed):
            return value
        maximised = direction == StudyDirection.MAXIMIZE
        if not self._signed:
            return 1.0 / value if maximised else value
        value = -value if maximised else value
        return 1.0 + value if value >= 0 else 1.0 / (1.0 - value)


def _distribution(values: list[Any]) -> BaseDistribution:
    """How Optuna says the same: a range of whole numbers, or a list of choices."""
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    if whole and len(values) > 1:
        step = values[1] - values[0]
        if step > 0 and all(b - a == step for a, b in zip(values, values[1:])):
            return IntDistribution(values[0], values[-1], step=step)
    return CategoricalDistribution(values)
