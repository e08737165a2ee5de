"""Each plot draws the run's numbers, and ArviZ's plots accept exported runs."""

from __future__ import annotations

import importlib
import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from conftest import SEED, target_of
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from runs import line_run
from sampled import sampled

from stanct import plots
from stanct.common.errors import StanctError
from stanct.pages.panels import PANELS, panels_of
from stanct.path.gaussian import GaussianBase
from stanct.plots.by_arviz import highest_density
from stanct.plots.canvas import CHAIN_COLOURS, plain
from stanct.plots.weights import coordinate_names
from stanct.runs.path_checks import round_trips


@pytest.fixture(scope="module", params=("joint", "parallel_tempering", "ais"))
def run(request: pytest.FixtureRequest) -> Any:
    return line_run(request.param)


@pytest.fixture(scope="module")
def tempered() -> Any:
    return line_run("joint", base=GaussianBase(np.zeros(2), np.eye(2)))


def line(axes: Axes, label: str) -> np.ndarray:
    """Points of the line with that label, shape (points, 2)."""
    found = [line for line in axes.lines if line.get_label() == label]
    assert len(found) == 1
    return np.asarray(found[0].get_xydata())


def test_every_panel_that_fits_draws_on_the_given_axes(run: Any) -> None:
    before = dict(mpl.rcParams)
    fitting = panels_of(run)
    assert len(fitting) >= 4
    for panel in fitting:
        axes = Figure().add_subplot()
        assert panel.draw(run, axes) is axes
        assert axes.has_data() or axes.child_axes
    assert dict(mpl.rcParams) == before


def test_a_panel_is_named_after_its_picture() -> None:
    """So that `run.shows` names what `stanct.plots` can draw."""
    assert all(panel.draw is getattr(plots, panel.needs) for panel in PANELS)
    assert {panel.needs for panel in PANELS} == set(plots.__all__)


def test_public_names_are_documented() -> None:
    for name in plots.__all__:
        words = (getattr(plots, name).__doc__ or "").split()
        assert words[:1] in (["Plot"], ["Sort"]) and len(words) > 5, name


def test_free_energy_is_the_curve(tempered: Any) -> None:
    points = line(plots.free_energy(tempered), "bridge")
    curve = tempered.curve(points[:, 0])
    assert points[:, 1] == pytest.approx(curve.log_z - curve.beta * tempered.evidence.log_z)
    assert points[[0, -1], 1] == pytest.approx([0, 0], abs=1e-9)
    other = line(plots.free_energy(tempered), "Rao–Blackwell")
    gap = tempered.rao_blackwell_evidence.log_z - tempered.evidence.log_z
    assert other[-1, 1] == pytest.approx(gap, abs=1e-9) and abs(gap) > 1e-9


def test_running_log_z_ends_at_each_chain_s_estimate(run: Any) -> None:
    axes, points = plots.running_log_z(run), np.empty((0, 2))
    for chain in range(run.chains):
        points = line(axes, f"chain {chain + 1}")
        assert points[-1, 1] == pytest.approx(run.evidence.chain_log_z[chain], abs=1e-7)
        assert np.all(np.diff(points[:, 0]) > 0)
    if "n_leapfrog__" in getattr(run, "statistics", {}):
        assert points[-1, 0] == run.statistics["n_leapfrog__"][-1].sum()


def test_occupancy_and_trace(tempered: Any) -> None:
    heights = plots.beta_occupancy(tempered).patches[0].get_data().values  # pyright: ignore
    assert heights.sum() == pytest.approx(100)
    assert heights[0] == pytest.approx(100 * np.mean(tempered.beta[0] < 0.05))
    texts = [text.get_text() for text in plots.beta_trace(tempered).texts]
    assert texts == [f"{n} trips" for n in round_trips(tempered.beta)]


def test_copies() -> None:
    run = line_run("pseudo_extended")
    heaviest = plots.copy_trace(run).lines[0].get_ydata()
    bottom = 1.3 * (run.chains - 1)
    assert np.array_equal(heaviest, bottom + run.copy_log_weights[0].argmax(axis=1))
    axes = plots.beta_occupancy(run)
    shares = [patch.get_data().values for patch in axes.patches]  # pyright: ignore[reportAttributeAccessIssue]
    assert np.allclose(np.sum(shares, axis=1), 100) and len(shares) == run.chains


def test_thermostats_and_temperature() -> None:
    run = line_run("tact")
    trace = plots.temperature_trace(run)
    assert [text.get_text() for text in trace.texts] == [f"{n} trips" for n in run.trips]
    assert np.array_equal(trace.lines[0].get_ydata(), 1.3 * (run.chains - 1) + run.trace[0, :, 1])
    axes = plots.thermostats(run)
    assert np.isclose(axes.lines[0].get_ydata()[-1], run.trace[0, :, 2].mean())  # pyright: ignore
    for name, expected in zip("θξ", run.thermostat_means, strict=True):
        assert np.allclose(line(axes, f"z of {name}, expected")[:, 1], expected)
    first = plots.control_occupancy(run).patches[1].get_data()  # pyright: ignore[reportAttributeAccessIssue]
    assert np.isclose(first.values.sum(), 100) and np.isclose(first.edges[-1], 5 / 3)


def test_expected_delta() -> None:
    """Weighted means of δ at the base and the target are what the run's draws give."""
    run = line_run("adiabatic")
    axes = plots.expected_delta(run)
    dots = axes.containers[0].lines[0].get_ydata()  # pyright: ignore[reportAttributeAccessIssue]
    assert np.isclose(dots[0] + run.means[0], run.delta[..., 0].mean(), atol=0.05)
    weights = np.exp(run.target_log_weights - run.target_log_weights.max())
    last = (weights * run.delta[..., -1]).sum() / weights.sum()
    assert np.isclose(dots[-1] + run.means[-1], last)


def test_the_base_s_misfit_is_seen(tempered: Any) -> None:
    moved = tempered.base.unwhiten(tempered.z)
    axes = plots.base_against_posterior(tempered)
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert sorted(names) == ["b[1]", "b[2]"]
    middles = axes.lines[-1].get_xdata()
    order = [coordinate_names(tempered).index(name) for name in names]
    sd = np.sqrt(np.diag(tempered.base.covariance))
    mean = tempered.expect("b").value
    assert moved.shape[-1] == 2
    assert middles == pytest.approx(((mean - tempered.base.mean) / sd)[order], abs=0.15)


def test_pair_shows_weighted_draws(tempered: Any) -> None:
    axes = plots.pair(tempered, names=["b[1]", "b[2]"])
    cloud = axes.child_axes[1].collections[0].get_offsets()
    exact = tempered.expect("b")
    assert np.ma.getdata(cloud).mean(axis=0) == pytest.approx(exact.value, abs=0.1)
    labels = {panel.get_xlabel() for panel in axes.child_axes}
    assert labels == {"", "b[1]", "b[2]"}


def test_chain_colours_stand_out_on_light_and_dark() -> None:
    """At least 3 : 1 against white and against the dark paper (WCAG 1.4.11)."""
    for paper in ("#ffffff", "#15181e"):
        for colour in CHAIN_COLOURS:
            bright, dim = sorted((luminance(colour), luminance(paper)), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= 3, (colour, paper)


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_plain_numbers() -> None:
    assert [plain(v) for v in (-1081.05, 0.5, 2e7)] == ["−1081.05", "0.5", "20000000"]


def test_arviz_plots_take_a_run(tempered: Any) -> None:
    container = tempered.to_arviz()
    mpl.use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = importlib.import_module("arviz")
        new = not hasattr(arviz, "plot_posterior")
        draw = (arviz.plot_trace, arviz.plot_dist if new else arviz.plot_posterior, arviz.plot_pair)
        for function in draw:
            assert function(container, var_names=["b"]) is not None
        importlib.import_module("matplotlib.pyplot").close("all")


def test_a_run_draws_itself_through_arviz(tempered: Any) -> None:
    """Each returns ArviZ's axes, and shows what the names mean."""
    mpl.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    titles = [one.get_title() for one in np.ravel(tempered.plot_trace("b"))]
    assert set(titles) == {"b[1]", "b[2]"}
    assert np.shape(tempered.plot_pair(["b[2]", "b[1]"])) == (2, 2)
    assert np.ravel(tempered.plot_posterior("b[2]"))[0].get_title() == "b[2]"
    assert tempered.plot_path().get_xlabel() == "inverse temperature β"
    with pytest.raises(StanctError, match="needs two scalars"):
        tempered.plot_pair("b[1]")
    with pytest.raises(StanctError, match="No search looked for modes"):
        tempered.plot_modes()
    survey = {"place": [[0.0, 0.0]], "spread": [[1.0, 1.0]], "log_evidence": [0.0]}
    one = replace(tempered, provenance={**tempered.provenance, "survey": survey})
    assert one.plot_modes().get_yticklabels()[0].get_text() == "mode 1"
    pyplot.close("all")


def test_intervals_of_highest_density_have_a_piece_for_each_mode() -> None:
    """Of two normals, 500 of their widths apart; skewed and heavy-tailed ones have one piece."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        minor = rng.random((4, 1000)) < 0.3
        x = np.where(minor, -50.0, 50.0) + np.where(minor, 0.2, 1.0) * rng.standard_normal(
            minor.shape
        )
        (low, high), (below, above) = highest_density(x, 0.95)
        assert -50.7 < low < -50.25 and -49.75 < high < -49.3
        assert 47.5 < below < 48.5 and 51.5 < above < 52.5
        for one in (np.exp(rng.standard_normal((4, 100))), rng.standard_t(2, (4, 1000))):
            ((low, high),) = highest_density(one, 0.95)
            assert np.mean((one >= low) & (one <= high)) == 0.95
    assert highest_density(np.full((4, 50), 2.0), 0.95) == [(2.0, 2.0)]
    assert highest_density(np.arange(400).reshape(4, 100) % 2 * 1.0, 0.95) == [
        (0.0, 0.0),
        (1.0, 1.0),
    ]


def test_pictures_of_separated_modes(tempered: Any) -> None:
    """The words below tell both intervals, and densities are as wide as a mode."""
    mpl.use("Agg")
    rng = np.random.default_rng(1)
    b = np.where(rng.random(tempered.delta.shape) < 0.5, 0.2, 0.7)
    b += 0.01 * rng.standard_normal(b.shape)
    torn = replace(tempered, variables={"b": b})
    (axes,) = np.ravel(torn.plot_posterior("b"))
    if not isinstance(axes, Axes):  # of ArviZ 1.x
        return
    assert axes.get_xlabel().count(" to ") == 2 and "mean=" not in str(axes.texts)
    left, right = torn.plot_trace("b")[0]
    assert right.get_xlabel() == "draw" and left.get_xlim()[0] > 0.1
    for line in left.lines:
        x, y = line.get_data()
        assert y[np.abs(x - 0.26).argmin()] < 0.02 * y.max() < 0.1 * y[np.abs(x - 0.2).argmin()]
    (asked,) = np.ravel(torn.plot_posterior("b", hdi_prob=0.5))
    assert not asked.get_xlabel() and any("50% HDI" in one.get_text() for one in asked.texts)
    importlib.import_module("matplotlib.pyplot").close("all")


def test_shares_on_a_ladder_stand_at_its_rungs(tempered: Any) -> None:
    rungs = np.array([0.0, 0.01, 0.4, 1.0])
    rung = np.random.default_rng(2).choice(4, p=[0.1, 0.2, 0.3, 0.4], size=tempered.beta.shape)
    axes = plots.beta_occupancy(replace(tempered, beta=rungs[rung]))
    x, share = line(axes, "chain 1").T
    assert np.array_equal(x, rungs) and share.sum() == pytest.approx(100)
    assert share == pytest.approx([10, 20, 30, 40], abs=8)
    assert 25 in line(axes, "uniform")[:, 1]


def test_a_picture_of_many_pairs_has_room(run: Any) -> None:
    """The labels of the ticks of neighbouring panels do not overlap."""
    many = replace(run, variables={f"v{k}": 1000 + run.variables["sum_b"] for k in range(5)})
    for count in (3, 5):
        axes = plots.pair(many, names=[f"v{k}" for k in range(count)])
        figure: Any = axes.figure
        figure.canvas.draw()
        boxes = [
            one.label1.get_window_extent()
            for panel in axes.child_axes if panel.get_xlabel()
            for one in panel.xaxis.get_major_ticks()
            if panel.get_xlim()[0] <= one.get_loc() <= panel.get_xlim()[1]
        ]  # fmt: skip
        boxes.sort(key=lambda box: box.x0)
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_one_call_writes_any_picture(tempered: Any, tmp_path: Path) -> None:
    mpl.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    for kind in ("pair", "trace", "posterior", "path", "weights"):
        assert tempered.save_plot(kind, tmp_path / f"{kind}.png").stat().st_size > 1000
    assert not pyplot.get_fignums()
    with pytest.raises(StanctError, match=r"no picture 'corner'.*\n?.*pair"):
        tempered.save_plot("corner", tmp_path / "a.png")


def test_the_prior_is_sampled_and_drawn() -> None:
    """Two observations of a normal mean whose prior is normal(0, 2)."""
    mpl.use("Agg")
    source = (
        "data { vector[2] y; } parameters { real m; } model { m ~ normal(0, 2); y ~ normal(m, 1); }"
        "generated quantities { real twice = 2 * m; }"
    )
    run = target_of(source, {"y": [3.0, 3.2]})
    found = sampled("gibbs", run, seed=SEED, draws=200, warmup=100, progress=False)
    prior = found.prior(draws=250)["m"]
    assert prior.shape == (4, 250)
    assert abs(prior.mean()) < 0.35 and abs(prior.std() - 2) < 0.3
    axes = np.ravel(found.plot_posterior("m", prior=True))[0]
    drawn = next(line for line in axes.lines if line.get_label() == "prior")
    x, y = np.asarray(drawn.get_xdata()), np.asarray(drawn.get_ydata())
    exact = np.exp(-np.square(x) / 8) / np.sqrt(8 * np.pi)
    assert x[0] < -3 and np.abs(y - exact)[20:-20].max() < 0.025
    both = np.ravel(found.plot_posterior(["m", "twice"], prior=True))
    assert [one.get_title() for one in both] == ["m", "twice"]
    (line,) = (one for one in both[1].lines if one.get_label() == "prior")
    assert np.asarray(line.get_ydata()).max() == pytest.approx(
        1 / (4 * np.sqrt(2 * np.pi)), rel=0.2
    )
    with pytest.raises(StanctError, match="no variable 'n'"):
        found.plot_posterior("n", prior=True)
    lacking = replace(found, programs={**found.programs, "density": source.partition("gen")[0]})
    with pytest.raises(StanctError, match="The prior of twice cannot be drawn"):
        lacking.plot_posterior("twice", prior=True)
    importlib.import_module("matplotlib.pyplot").close("all")
