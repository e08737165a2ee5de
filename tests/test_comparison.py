"""Comparison of models: closed forms, and comparisons that are refused."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, faults_of
from conftest import LONG, SEED, target_of
from sampled import sampled
from scipy.special import gammaln
from scipy.stats import norm
from targets import SKEWED

import stanct
from stanct import StanctError, compare
from stanct.cli.main import main
from stanct.pages.page import with_error
from stanct.runs.averaging import compared_by_loo
from stanct.runs.comparison import BayesFactor, Comparison

REGRESSION = """
data { int N; int K; matrix[N, K] X; vector[N] y; }
parameters { vector[K] b; real<lower=0> s2; }
model { s2 ~ inv_gamma(2, 1); b ~ normal(0, 2 * sqrt(s2)); y ~ normal(X * b, sqrt(s2)); }
"""
CENTRED = """
data { int J; vector[J] y; vector<lower=0>[J] sigma; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model { mu ~ normal(0, 5); tau ~ normal(0, 5); theta ~ normal(mu, tau); y ~ normal(theta, sigma); }
"""
NON_CENTRED = """
data { int J; vector[J] y; vector<lower=0>[J] sigma; }
parameters { real mu; real<lower=0> tau; vector[J] e; }
model { mu ~ normal(0, 5); tau ~ normal(0, 5); e ~ std_normal(); y ~ normal(mu + tau * e, sigma); }
"""
SCHOOLS = {
    "J": 8,
    "y": [28, 8, -3, 7, -1, 1, 18, 12],
    "sigma": [15, 10, 16, 11, 9, 11, 10, 18],
}


def design() -> tuple[np.ndarray, np.ndarray]:
    """Columns of which the third says nothing of y."""
    rng = np.random.default_rng(7)
    x = np.column_stack([np.ones(20), np.linspace(-1, 1, 20), rng.standard_normal(20)])
    return x, x[:, :2] @ [0.5, 0.8] + 0.7 * rng.standard_normal(20)


def regression_log_z(x: np.ndarray, y: np.ndarray) -> float:
    """y | X is multivariate t: normal regression with an inverse-gamma(2, 1) variance."""
    n, shape = len(y), 2.0
    covariance = np.eye(n) + 4 * x @ x.T
    rate = 1 + y @ np.linalg.solve(covariance, y) / 2
    log_det = np.linalg.slogdet(covariance)[1]
    constant = gammaln(shape + n / 2) - gammaln(shape) - (n * np.log(2 * np.pi) + log_det) / 2
    return float(constant - (shape + n / 2) * np.log(rate))


def schools_log_z() -> float:
    """Given tau, y is Gaussian with mean mu integrated out; one integral is left."""
    y, sd = np.array(SCHOOLS["y"], float), np.array(SCHOOLS["sigma"], float)
    tau = np.linspace(0, 60, 6001)
    values = []
    for t in tau:
        covariance = np.diag(sd**2 + t**2) + 25.0
        quadratic = y @ np.linalg.solve(covariance, y)
        values.append(-(8 * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + quadratic) / 2)
    # The program's half normal keeps Stan's constants, which do not know of the bound at 0.
    return float(np.log(np.trapezoid(np.exp(values) * norm.pdf(tau, 0, 5), tau)))


def sample(source: str, data: dict[str, Any], name: str, draws: int = 500) -> stanct.TemperedRun:
    return sampled(
        "joint",
        target_of(source, data, name),
        seed=SEED,
        draws=draws,
        warmup=200,
        base="laplace",
        bootstrap=0,
        progress=False,
    )


@pytest.fixture(scope="module")
def nested() -> list[stanct.TemperedRun]:
    x, y = design()
    return [
        sample(REGRESSION, {"N": 20, "K": k, "X": x[:, :k], "y": y}, f"columns{k}")
        for k in (1, 2, 3)
    ]


@pytest.fixture(scope="module")
def comparison(nested: list[stanct.TemperedRun]) -> Comparison:
    return compare(*nested, observed="y")


def test_nested_regressions(comparison: Comparison) -> None:
    x, y = design()
    exact = {f"columns{k}": regression_log_z(x[:, :k], y) for k in (1, 2, 3)}
    for first, second in itertools.combinations(comparison.names, 2):
        factor = comparison.bayes_factor(first, second)
        assert factor.models == (first, second)
        truth = exact[first] - exact[second]
        assert abs(factor.log - truth) < 4 * factor.std_error < 0.4
    truths = np.exp(np.array([*exact.values()]))
    truths /= truths.sum()
    low, high = comparison.probability_interval.T
    assert (low < comparison.probability).all() and (comparison.probability < high).all()
    # Twice as far as the 95 % interval on the log-odds scale is four standard errors.
    odds = [np.log(p / (1 - p)) for p in (truths, comparison.probability, low, high)]
    assert (abs(odds[0] - odds[1]) < odds[3] - odds[2]).all()
    assert comparison.order[0] == 1 and "columns2 is better than columns3" in comparison.verdict
    assert list(comparison.table.index) == [comparison.names[i] for i in comparison.order]


def test_factors_over_a_model_of_ones_choice(nested: list[stanct.TemperedRun]) -> None:
    found = compare(*nested, observed="y", names=["H0", "H1", "H2"], over="H0")
    over = {(one["of"], one["over"]): one["log"] for one in found.record()["bayes_factors"]}
    assert over == {
        (name, "H0"): found.bayes_factor(name, "H0").log for name in found.names if name != "H0"
    }
    assert found.table.loc["H1", "log_bayes_factor"] == over["H1", "H0"]
    assert f"H1 over H0: {found.bayes_factor('H1', 'H0').in_words}" in str(found)
    assert "Bayes factors are over H0" in found.report()
    with pytest.raises(StanctError, match="no model 'H3'"):
        compare(*nested, observed="y", over="H3")


@LONG
def test_eight_schools_centred_or_not() -> None:
    # Few tours of `joint` go into the neck of the centred program, and its error may be .8.
    centred = sampled("gibbs", target_of(CENTRED, SCHOOLS), seed=SEED, draws=2400, progress=False)
    found = compare(centred, sample(NON_CENTRED, SCHOOLS, "model", 2000), names=["c", "n"])
    factor = found.bayes_factor("c", "n")
    assert abs(factor.log) < 4 * factor.std_error < 2
    assert "The data hardly tell" in found.verdict
    assert (abs(found.log_z - schools_log_z()) < 4 * found.std_error).all()


@LONG
def test_errors_are_propagated(nested: list[stanct.TemperedRun]) -> None:
    """Interval ends of the model probabilities against simulated normal errors."""
    errors, log_z = (0.05, 0.4, 0.2), (0.0, 0.6, -1.0)
    runs = []
    for run, value, error in zip(nested, log_z, errors, strict=True):
        copy = dataclasses.replace(run)
        known = dataclasses.replace(run.evidence, log_z=value, std_error=error, warnings=())
        object.__setattr__(copy, "evidence", known)  # cached: in place of the run's own
        runs.append(copy)
    found = compare(*runs, observed=["y"], prior=[1, 1, 2])
    rng = np.random.default_rng(SEED)
    weight = rng.normal(log_z, errors, (200_000, 3)) + np.log([1, 1, 2])
    p = np.exp(weight) / np.exp(weight).sum(axis=1, keepdims=True)
    assert found.probability_interval == pytest.approx(
        np.quantile(p, [0.025, 0.975], 0).T, abs=0.02
    )
    assert found.table["prior"].to_dict() == {"columns2": 0.25, "columns1": 0.25, "columns3": 0.5}
    assert found.bayes_factor("columns2", "columns1").std_error == pytest.approx(
        np.hypot(0.4, 0.05)
    )
    assert "errors are too large" in found.verdict


@pytest.mark.parametrize(
    ("log", "error", "words"),
    [(1.09, 0.0, "bare mention"), (1.1, 0.0, "positive"), (-2, 0.1, "positive"),
     (2.99, 0.0, "positive"), (3.0, 0.0, "strong"), (4, 0.1, "strong"), (5.01, 0.0, "strong"),
     (5.02, 0.0, "very strong"), (9, 1, "very strong"), (9, 2.5, "strong"),
     (9, 5, "bare mention"), (-9, 5, "bare mention")],
)  # fmt: skip
def test_strength_counts_the_error(log: float, error: float, words: str) -> None:
    assert BayesFactor(log, error).strength.endswith(words)


def test_different_data_are_refused(nested: list[stanct.TemperedRun]) -> None:
    with pytest.raises(StanctError, match=r"'columns1' and 'columns2' ran on different data: `K`"):
        compare(*nested)
    x, y = design()
    other = sample(REGRESSION, {"N": 20, "K": 1, "X": x[:, :1], "y": y + 1}, "other", draws=200)
    with pytest.raises(StanctError, match=r"`y` differs, `N`, `K`, `X` agree.*--observed"):
        compare(nested[0], other)
    with pytest.raises(StanctError, match=r"declares no data `z`, which observed= names"):
        compare(*nested, observed=["z"])
    stranger = sample(
        re.sub(r"\by\b", "t", SKEWED.source.replace("N", "n")),
        {"n": 2, "t": [0, 1]},
        "stranger",
        draws=200,
    )
    with pytest.raises(
        StanctError, match=r"share no data: one declares N, K, X, y, the other n, t"
    ):
        compare(nested[0], stranger)


def test_what_makes_no_comparison(nested: list[stanct.TemperedRun]) -> None:
    with pytest.raises(StanctError, match="two runs or more, not 1"):
        compare(nested[0])
    with pytest.raises(StanctError, match="3 positive weights"):
        compare(*nested, observed="y", prior=[1, 0, 1])
    for odd in ({"a": 1}, "x"):
        with pytest.raises(StanctError, match="3 positive weights"):
            compare(*nested, observed="y", prior=odd)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StanctError, match="3 different ones"):
        compare(*nested, observed="y", names=["a", "b", "a"])
    told = {**nested[0].provenance, "ends": {"base": "null.stan"}}
    with pytest.raises(StanctError, match="log of the ratio of two programs"):
        compare(dataclasses.replace(nested[0], provenance=told), nested[1], observed="y")


def test_a_run_of_the_prior_alone_is_no_model_of_the_data() -> None:
    source = """
    data { int prior_only; vector[2] y; }
    parameters { real m; }
    model { m ~ std_normal(); if (!prior_only) y ~ normal(m, 1); }
    """
    runs = [sample(source, {"prior_only": k, "y": [0, 1]}, f"m{k}", draws=60) for k in (0, 1)]
    with pytest.raises(StanctError, match="different data: `prior_only` differs"):
        compare(*runs, observed="y")


def test_what_nobody_checked_is_said_of_a_comparison(nested: list[stanct.TemperedRun]) -> None:
    lack = {"kind": "missing_constant", "line": 7, "parameters": ["b"], "improper": False}
    told = {**nested[0].provenance, "omissions": [lack]}
    found = compare(dataclasses.replace(nested[0], provenance=told), nested[1], observed="y")
    assert found.notes[0].startswith("columns1: nobody checked that line 7 is normalised.")


def test_notes_say_what_could_not_be_checked(nested: list[stanct.TemperedRun]) -> None:
    found = compare(nested[0], nested[0])
    assert found.names == ("columns1 (1)", "columns1 (2)")
    assert "same program on the same data" in found.notes[-1]
    x, y = design()
    source = """
    data { int N; vector[N] y; vector[N] w; vector[N] v; real u; }
    transformed data { vector[N] log_v = log(v); }
    parameters { real m; }
    model { m ~ std_normal(); y ~ normal(m * w, 1); log_v ~ normal(m, 1); target += -square(u); }
    """
    data = {"N": 20, "y": y, "w": x[:, 1], "v": np.exp(y), "u": 0.0, "unused": 3}
    few = sample(source, data, "few", draws=60)
    found = compare(nested[0], few)
    notes = " ".join(found.notes)
    assert "few has warnings" in notes and "round_trips" in found.table.loc["few", "warnings"]
    assert "Not to be relied on" in found.verdict and not found.is_reliable
    assert "Not all models have the data v, u of few; observations must be the same" in notes
    assert "unused" not in notes


def test_command(
    nested: list[stanct.TemperedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for run, folder in zip(nested, folders, strict=False):
        run.save(folder)
    paths = [str(folder) for folder in folders]
    assert main(["compare", *paths]) == 1
    assert "different data: `K`, `X` differ, `N`, `y` agree" in capsys.readouterr().err
    assert main(["compare", *paths, "--observed", "y", "--prior", "3,1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("two is better than one (BF ") and "\ntwo " in out
    assert main(["compare", *paths, "--observed", "y,N", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in record["models"]] == ["two", "one"]
    assert record["models"][0]["log_z"] == nested[1].evidence.log_z
    (factor,) = record["bayes_factors"]
    gap = nested[1].evidence.log_z - nested[0].evidence.log_z
    error = np.hypot(nested[0].evidence.std_error, nested[1].evidence.std_error)
    assert (factor["of"], factor["over"]) == ("two", "one")
    assert [factor[name] for name in ("log", "std_error")] == pytest.approx([gap, error])
    expected = np.exp([gap - 1.96 * error, gap, gap + 1.96 * error])
    assert [factor[name] for name in ("low", "value", "high")] == pytest.approx(expected)
    page = tmp_path / "page.html"
    assert main(["compare", *paths, "--observed", "y", "--out", str(page)]) == 0
    assert "The page is" in capsys.readouterr().err and "two is better than one" in page.read_text()
    assert main(["compare", paths[0]]) == 1


def test_page_in_a_browser(
    nested: list[stanct.TemperedRun], browser: Browser, tmp_path: Path
) -> None:
    page = compare(*nested, names=["<b>1</b>", "two", "модель"], observed="y").report()
    assert faults_of(browser, page, tmp_path / "page.html") == []


def test_page(nested: list[stanct.TemperedRun]) -> None:
    """Answer first, every number, names escaped, nothing from elsewhere."""
    names = ["<script>alert(1)</script>", "{{ 7 * 7 }}", "модель"]
    found = compare(*nested, names=names, observed="y")
    page = found.report()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert "{{ 7 * 7 }}" in page and "модель" in page
    assert page.index('id="verdict"') < page.index("<svg")
    assert page.count("<figure>") == page.count('<svg role="img" aria-label="') == 2
    for log_z, error in zip(found.log_z, found.std_error, strict=True):
        assert with_error(log_z, error) in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert len(page.encode()) < 300_000
    assert "iframe" in found._repr_html_()


def exact_average(prior: np.ndarray) -> tuple[np.ndarray, float]:
    """Posterior probabilities of the nested regressions, and the averaged mean of s2."""
    x, y = design()
    weights = prior * np.exp([regression_log_z(x[:, :k], y) for k in (1, 2, 3)])
    means = []
    for k in (1, 2, 3):
        covariance = np.eye(20) + 4 * x[:, :k] @ x[:, :k].T
        means.append((1 + y @ np.linalg.solve(covariance, y) / 2) / (2 + 10 - 1))
    share = weights / weights.sum()
    return share, float(share @ means)


class TestAveraging:
    PRIOR = (20.0, 1.0, 1.0)

    @pytest.fixture
    def weighted(self, nested: list[stanct.TemperedRun]) -> Comparison:
        """A prior that gives the smallest model weight, so that two models count."""
        return compare(*nested, observed="y", prior=self.PRIOR)

    def test_average_over_models(self, weighted: Comparison) -> None:
        share, mean = exact_average(np.array(self.PRIOR))
        assert share.max() < 0.95
        assert weighted.probability == pytest.approx(share, abs=0.1)
        found = weighted.average("s2")
        assert abs(found.value - mean) < 4 * found.std_error < 0.1
        same = weighted.average(lambda variables: variables["s2"])
        assert same.value == found.value and same.std_error == found.std_error

    def test_the_error_knows_the_models(self, weighted: Comparison) -> None:
        """It is more than that of the averages alone, because probabilities err as well."""
        alone = [run.expect("s2").std_error for run in weighted.runs]
        least = np.sqrt(np.square(weighted.probability * alone).sum())
        assert least < weighted.average("s2").std_error < 10 * least

    def test_failed_checks_of_a_model_stay_beside_the_average(self, weighted: Comparison) -> None:
        first, *rest = weighted.runs
        more = {"log_z": 1e3, "std_error": 0.1, "given": ["s2"]}
        low = dataclasses.replace(first, provenance={**first.provenance, "two_stages": more})
        found = dataclasses.replace(weighted, runs=(low, *rest)).average("s2")
        assert "two_stages" in found.warnings
        assert "two_stages" not in weighted.average("s2").warnings

    def test_what_has_no_average(self, weighted: Comparison) -> None:
        with pytest.raises(StanctError, match="different shapes in the models"):
            weighted.average("b")
        with pytest.raises(StanctError, match="no variable 'a'"):
            weighted.average("a")

    def test_loo_beside(self, comparison: Comparison) -> None:
        table = comparison.loo()
        assert set(table.index) == set(comparison.names)
        assert table.index[-1] == "columns1"
        assert table["weight"].to_numpy().sum() == pytest.approx(1, abs=0.02)

    def test_one_table_and_one_page(
        self, comparison: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "elpd_loo" not in comparison.table and "stacking" not in str(comparison.report())
        found = compare(*comparison.runs, names=comparison.names, observed="y", loo=True)
        alone = comparison.loo()
        name = next(column for column in ("elpd_loo", "elpd") if column in alone)
        for row, key in (
            (name, "elpd_loo"),
            ("se", "elpd_loo_error"),
            ("weight", "stacking_weight"),
        ):
            assert found.table[key].to_dict() == alone[row].to_dict()
        assert found.table["log_z"].equals(comparison.table["log_z"])
        page = str(found.report())
        assert "elpd (LOO)" in page and "stacking" in page
        for run, folder in zip(comparison.runs, comparison.names, strict=True):
            run.save(tmp_path / folder)
        folders = [str(tmp_path / folder) for folder in comparison.names]
        assert main(["compare", *folders, "--observed", "y", "--loo", "--json"]) == 0
        told = {row["name"]: row for row in json.loads(capsys.readouterr().out)["models"]}
        for folder in comparison.names:
            assert told[folder]["elpd_loo"] == pytest.approx(found.table.loc[folder, "elpd_loo"])

    def test_a_doubt_of_loo_is_a_warning(self, comparison: Comparison) -> None:
        table = comparison.loo().assign(warning=[True, *[False] * (len(comparison.names) - 1)])
        found = dataclasses.replace(comparison, by_loo=table)
        first = str(table.index[0])
        assert found.table.loc[first, "warnings"] == "loo"
        assert [name for name in found.names if "loo" in found.warnings_of(name)] == [first]

    def test_observations_of_several_kinds(self) -> None:
        """elpd is the sum over all observations, of whatever kind."""
        source = """
        data {{ int N; vector[N] y; vector[N] z; }}
        parameters {{ real a; }}
        model {{ a ~ normal(0, {0}); y ~ normal(a, 1); z ~ normal(-a, 1); }}
        """
        data = {"N": 6, "y": np.linspace(0, 2, 6), "z": np.linspace(-2, 1, 6)}
        runs = [sample(source.format(width), data, f"width{width}") for width in (1, 2)]
        arviz, table = importlib.import_module("arviz"), compare(*runs, names=["a", "b"]).loo()
        for name, run in zip("ab", runs, strict=True):
            alone = [arviz.loo(run.to_arviz(), var_name=kind) for kind in "yz"]
            parts = [one["elpd_loo"] if hasattr(one, "index") else one.elpd for one in alone]
            elpd = next(table.loc[name, key] for key in ("elpd_loo", "elpd") if key in table)
            assert elpd == pytest.approx(sum(parts), abs=1e-6)

    def test_loo_of_other_observations_is_refused(self) -> None:
        source = "data { int N; vector[N] y; } parameters { real a; } model { a ~ normal(0, 1); y ~"
        runs = [
            sample(f"{source} normal(a, 1); }}", {"N": n, "y": np.zeros(n)}, f"n{n}")
            for n in (3, 5)
        ]
        with pytest.raises(StanctError, match="cannot compare the models by leave-one-out"):
            compared_by_loo(["a", "b"], runs)


def test_runs_bridges_and_folders_together(
    nested: list[stanct.TemperedRun], tmp_path: Path
) -> None:
    """A bridge of one run's draws stands beside that run, and beside a saved one."""
    x, y = design()
    model = stanct.TemperedModel(
        target_of(REGRESSION, {"N": 20, "K": 2, "X": x[:, :2], "y": y}).program
    )
    data = {"N": 20, "K": 2, "X": x[:, :2], "y": y}
    bridge = stanct.bridge(model, data, nested[1].resample(400, seed=1), search=False, seed=1)
    nested[2].save(tmp_path / "three")
    found = compare(nested[0], bridge, tmp_path / "three", names=["a", "b", "c"], observed="y")
    for first, second, k, j in (("a", "b", 1, 2), ("b", "c", 2, 3)):
        factor = found.bayes_factor(first, second)
        exact = regression_log_z(x[:, :k], y) - regression_log_z(x[:, :j], y)
        assert abs(factor.log - exact) < 4 * factor.std_error < 0.5


def test_factors_are_told_as_factors() -> None:
    factor = stanct.BayesFactor(np.log(12.3), 0.2134)
    assert factor.in_words == "BF 12.3 (numerical 95 %: 8.1 to 18.7)"
    assert factor.value == pytest.approx(12.3)
    assert factor.value_interval == pytest.approx((8.096, 18.69), rel=1e-3)
    assert repr(factor).endswith("log BF 2.5096 ± 0.2134: evidence positive, for the first")
    against = stanct.BayesFactor(-1.636, 0.01, ("m1", "m0"))
    assert repr(against).startswith("BF 0.195 ")
    assert repr(against).endswith(": evidence positive, for m0")
    assert repr(stanct.BayesFactor(-1.0, 0.1)).endswith(
        "evidence not worth more than a bare mention"
    )
    huge = stanct.BayesFactor(2000.0, 1.0)
    assert huge.in_words.startswith("BF 3.88e868 ") and huge.value == np.inf
    assert stanct.BayesFactor(-12.0, 0.0).in_words.startswith("BF 6.14e-6")
    exact = stanct.BayesFactor(9.4, 0.0015)
    assert exact.in_words == "BF 1.209e4 (numerical 95 %: 1.205e4 to 1.212e4)"
