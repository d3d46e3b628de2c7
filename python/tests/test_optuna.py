"""Squall's search inside Optuna."""

import pytest

optuna = pytest.importorskip("optuna")
import squall  # noqa: E402
from squall.optuna import SquallSampler  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPACE = squall.Space(
    {"block": [16, 32, 64, 128, 256], "unroll": range(1, 17), "mode": ["row", "tile"]},
    ["block * unroll <= 1024"],
)


def value(c):
    return 1 + abs(c["block"] - 64) / 16 + abs(c["unroll"] - 11) + (c["mode"] == "row")


def objective(trial):
    c = {
        "block": trial.suggest_categorical("block", [16, 32, 64, 128, 256]),
        "unroll": trial.suggest_int("unroll", 1, 16),
        "mode": trial.suggest_categorical("mode", ["row", "tile"]),
    }
    assert c in SPACE
    if c["unroll"] == 13:
        raise optuna.TrialPruned
    return value(c)


def best(sampler, direction, sign=1.0, shift=0.0):
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.optimize(lambda t: sign * (objective(t) - shift), n_trials=60)
    assert len({tuple(t.params.values()) for t in study.trials}) == 60
    return sign * study.best_value + shift


def test_all_trials_are_legal_and_the_best_is_found():
    least = min(value(c) for c in SPACE)
    found = [best(SquallSampler(SPACE, trials=60, seed=s), "minimize") for s in range(5)]
    assert sorted(found)[2] <= least + 1, (found, least)


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_objectives_may_be_maximised_and_negative(shift):
    least = min(value(c) for c in SPACE)
    found = [
        best(SquallSampler(SPACE, trials=60, seed=s), "maximize", -1.0, shift) for s in range(5)
    ]
    assert sorted(found)[2] <= least + 1, (found, least)


def test_what_it_cannot_search_is_refused():
    def run(function, **study):
        made = optuna.create_study(sampler=SquallSampler(SPACE), **study)
        made.optimize(function, n_trials=1)

    with pytest.raises(ValueError, match="not in the sampler's space"):
        run(lambda t: t.suggest_float("x", 0, 1))
    with pytest.raises(ValueError, match="just these values"):
        run(lambda t: t.suggest_int("unroll", 1, 99))
    with pytest.raises(ValueError, match="one objective"):
        run(lambda t: (objective(t), 1.0), directions=["minimize", "minimize"])


def test_a_space_that_is_tried_out_gives_the_best_again():
    space = squall.Space({"x": [1, 2, 3]})
    study = optuna.create_study(sampler=SquallSampler(space, trials=10))
    study.optimize(lambda t: abs(t.suggest_int("x", 1, 3) - 2) + 1.0, n_trials=5)
    assert study.best_params == {"x": 2} and study.trials[4].params == {"x": 2}
