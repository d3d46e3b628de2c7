"""Plots and frames of what was found."""

import os
import random
import shutil

import pytest

import squall
from squall.plots import _explained, importance, plot_curve, plot_importance, plot_roofline

needs_cc = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "gcc")) is None, reason="there is no C compiler"
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    path = tmp_path_factory.mktemp("plots") / "tuned.squall"
    report = squall.tune("matmul m=64 n=64 k=64", trials=24, store=path)
    return report, squall.Store(path)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@needs_cc
def test_pictures_show_what_was_measured(tuned, pyplot, tmp_path):
    report, store = tuned
    (task,) = report.tasks
    curve = plot_curve(report)
    last = curve.lines[0].get_ydata()[-1]
    base = task["untuned_ns"] or task["curve"][0][1]
    assert last == pytest.approx(base / task["curve"][-1][1])
    roof = plot_roofline(report)
    x, y = [line for line in roof.lines if line.get_label() == task["name"]][0].get_data()
    assert x[0] == pytest.approx(task["operations"] / task["bytes"])
    assert y[0] == pytest.approx(task["operations"] / task["best_ns"])
    bars = plot_importance(store, task["name"])
    assert bars.patches and all(0 <= b.get_width() <= 1 for b in bars.patches)
    # They can be drawn where other axes are, and saved.
    figure, three = pyplot.subplots(1, 3)
    plot_curve(report, axes=three[0])
    plot_roofline(report, axes=three[1])
    plot_importance(store, task["name"], axes=three[2])
    figure.savefig(tmp_path / "three.png")
    assert (tmp_path / "three.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="no task is called"):
        plot_curve(report, "nothing")
    with pytest.raises(ValueError, match="no measured trial"):
        importance(store, "nothing")


def test_importance_is_the_spread_that_a_knob_explains():
    rng = random.Random(2)
    trials = []
    for _ in range(400):
        big, small, none = rng.choice("abcd"), rng.choice("ab"), rng.choice("abcdefgh")
        time = 2.0 * "abcd".index(big) + 0.5 * (small == "b") + rng.gauss(0, 0.1)
        trials.append(({"big": big, "small": small, "none": none, "one": "x"}, time))
    shares = _explained(trials)
    assert list(shares)[0] == "big" and shares["big"] > 0.9
    assert 0.005 < shares["small"] < 0.1 and shares["none"] < 0.02 and "one" not in shares


@needs_cc
def test_trials_as_frames(tuned):
    _, store = tuned
    columns = store.columns()
    pandas = pytest.importorskip("pandas")
    frame = store.trials()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == list(columns)
    assert len(frame) == len(columns["seconds"]) >= 24
    pyarrow = pytest.importorskip("pyarrow")
    table = store.arrow()
    assert isinstance(table, pyarrow.Table) and table.num_rows == len(frame)
    assert table["seconds"].to_pylist() == columns["seconds"]


def test_choose_and_predict_name_what_is_wrong(tmp_path):
    with pytest.raises(squall.Error):
        squall.choose(tmp_path / "missing.chooser", "x", device="gfx942_304")
    with pytest.raises(squall.Error, match="gfx942_304"):
        squall.choose(tmp_path / "missing.chooser", "x", device="a GPU")
