"""Fits of other tools are read into the same draws, whatever form they come in."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import LONG, target_of

import stanct
from stanct.common.errors import StanctError
from stanct.engines import homes
from stanct.estimates.arviz_bridge import inference_data
from stanct.runs.decisions import decisions
from stanct.runs.foreign import is_fit, read_draws, read_fit
from stanct.runs.unconstrained import sampled, unconstrained
from stanct.targets.program_target import ProgramTarget

SOURCE = """
data { int N; }
parameters { matrix[2, 3] a; real<lower=0> s; vector[N] none; }
model { to_vector(a) ~ std_normal(); s ~ exponential(1); }
generated quantities { real g = 1; }
"""
SHAPES = {"a": (2, 3), "s": ()}


@pytest.fixture
def target() -> ProgramTarget:
    return target_of(SOURCE, {"N": 0})


@pytest.fixture
def draws(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"a": rng.standard_normal((2, 5, 2, 3)), "s": rng.exponential(size=(2, 5))}


LP = np.arange(10.0).reshape(2, 5)
DIVERGENT = np.tile(np.arange(5) == 2, (2, 1))


def write_csv(
    path: Path, draws: dict[str, np.ndarray], chain: int, *, digits: int = 17, warmup: int = 0
) -> Path:
    """A file as CmdStan writes it, with the first index of a matrix the fastest."""
    a, s = draws["a"][chain], draws["s"][chain]
    names = ["lp__", "divergent__"]
    names += [f"a.{i + 1}.{j + 1}" for j in range(3) for i in range(2)] + ["s", "g"]
    rows = [
        [LP[chain, d], d == 2, *(a[d, i, j] for j in range(3) for i in range(2)), s[d], 1.0]
        for d in range(len(s))
    ]
    rows = [[99.0] * len(names)] * warmup + rows
    lines = ["# model = model", "#     num_warmup = 6", f"#     save_warmup = {int(warmup > 0)}"]
    lines += ["#     thin = 2", ",".join(names), "# Adaptation terminated", "# Step size = 0.5"]
    lines += [",".join(f"{value:.{digits}g}" for value in row) for row in rows]
    lines += ["# ", "#  Elapsed Time: 0.1 seconds (Warm-up)"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def frame(draws: dict[str, np.ndarray], style: str, first: int = 1) -> pd.DataFrame:
    """Draws of both chains as CmdStanPy's or the R package posterior's data frame."""
    columns: dict[str, Any] = {"chain__": np.repeat([1, 2], 5), "lp__": LP.ravel()}
    columns["divergent__"] = DIVERGENT.ravel()
    for i in range(2):
        for j in range(3):
            label = style.format(i + first, j + first)
            columns[label] = draws["a"][..., i, j].ravel()
    return pd.DataFrame({**columns, "s": draws["s"].ravel()})


def container(draws: dict[str, np.ndarray]) -> Any:
    return inference_data(
        {"posterior": draws, "sample_stats": {"lp": LP, "diverging": DIVERGENT}}, {}
    )


def dataset(draws: dict[str, np.ndarray]) -> Any:
    group = container({**draws, "lp": LP, "diverging": DIVERGENT})["posterior"]
    return group.to_dataset() if hasattr(group, "to_dataset") else group


def of_arviz(draws: dict[str, np.ndarray]) -> pd.DataFrame:
    """The columns of ArviZ's `InferenceData.to_dataframe`."""
    names = {"chain__": "chain", "lp__": ("sample_stats", "lp"), "s": ("posterior", "s")}
    names["divergent__"] = ("sample_stats", "diverging")
    for i in range(2):
        names |= {f"a[{i},{j}]": ("posterior", f"a[{i},{j}]", i, j) for j in range(3)}
    found = frame(draws, "a[{},{}]", 0)
    found.columns = pd.Index([names[name] for name in found.columns], tupleize_cols=False)
    return found


def test_a_frame_of_one_group(draws: dict[str, np.ndarray]) -> None:
    """ArviZ's columns then have no group; those of other groups are no parameters."""
    found = frame(draws, "a[{},{}]", 0)
    own = [(name, *range(2)) if "[" in name else name for name in found.columns]
    found.columns = pd.Index(own, tupleize_cols=False)
    found[[("observed_data", f"y[{k}]", k) for k in range(2)]] = 0.0
    assert np.array_equal(read_fit(found, SHAPES).variables["a"], draws["a"])


def test_files_that_others_read(tmp_path: Path) -> None:
    with pytest.raises(StanctError, match=r"neither CSV nor netCDF.*\n?.*read_parquet"):
        read_fit(tmp_path / "fit.parquet", SHAPES)


def with_warmup(draws: dict[str, np.ndarray]) -> Any:
    """ArviZ's container of a CmdStanMCMC whose warm-up was saved."""
    before = np.full((2, 4), 99.0)
    lp, diverging = np.hstack([before, LP]), np.hstack([before > 0, DIVERGENT])
    groups = {"posterior": draws, "sample_stats": {"lp": lp, "diverging": diverging}}
    return inference_data(groups, {})


FORMS = {
    "mapping": lambda d, _: {**d, "lp__": LP, "divergent__": DIVERGENT},
    "mapping with more": lambda d, _: {**d, "lp": LP, "diverging": DIVERGENT, "other": np.zeros(7)},
    "brackets": lambda d, _: frame(d, "a[{},{}]"),
    "dots": lambda d, _: frame(d, "a.{}.{}"),
    "from zero": lambda d, _: frame(d, "a[{}, {}]", 0),
    "blanks": lambda d, _: frame(d, " a[{},{}]").rename(columns={"s": "s "}),
    "of ArviZ": lambda d, _: of_arviz(d),
    "container": lambda d, _: container(d),
    "container with warm-up": lambda d, _: with_warmup(d),
    "group": lambda d, _: dataset(d),
    "files": lambda d, p: [write_csv(p / f"{c}.csv", d, c) for c in range(2)],
    "folder": lambda d, p: [write_csv(p / f"{c}.csv", d, c).parent for c in range(2)][1],
    "with warm-up": lambda d, p: [write_csv(p / f"{c}.csv", d, c, warmup=3) for c in range(2)],
    "netCDF": lambda d, p: container(d).to_netcdf(str(p / "fit.nc")),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_draws(
    form: str, draws: dict[str, np.ndarray], tmp_path: Path
) -> None:
    found = read_fit(FORMS[form](draws, tmp_path), SHAPES)
    assert list(found.variables) == ["a", "s"]
    for name, values in draws.items():
        assert found.variables[name] == pytest.approx(values, abs=1e-12)
    assert found.lp is not None and np.array_equal(found.lp, LP)
    assert found.divergent == 0.2


@pytest.mark.parametrize("mangled", [True, False])
@pytest.mark.parametrize("chains", [True, False])
def test_tables_of_r(
    chains: bool, mangled: bool, draws: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """write.csv quotes names, which have commas, and adds a nameless column of row names.

    Where a data frame was made of such a table, as by read.csv, dots stand for brackets and commas.
    """
    names = ["lp__", "s", *(f"a[{i},{j}]" for i in (1, 2) for j in (1, 2, 3)), "a_b[1,x]"]
    more = [".chain", ".iteration", ".draw"] if chains else []
    lines = [",".join(f'"{name}"' for name in ("", *names, *more))]
    if mangled:
        lines = [",".join(f'"{re.sub("[^A-Za-z0-9_]", ".", n)}"' for n in ("X", *names, *more))]
    for row in range(10 if chains else 5):
        chain, k = divmod(row, 5)
        own = [LP[chain, k], draws["s"][chain, k], *draws["a"][chain, k].ravel(), 0.0]
        end = [chain + 1, k + 1, row + 1] if chains else []
        lines.append(",".join([f'"{row + 1}"', *(repr(float(v)) for v in own), *map(str, end)]))
    file = tmp_path / "draws.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = read_fit(file, SHAPES)
    count = 2 if chains else 1
    assert found.variables["a"] == pytest.approx(draws["a"][:count], abs=1e-12)
    assert found.variables["s"] == pytest.approx(draws["s"][:count], abs=1e-12)
    assert found.lp is not None and np.array_equal(found.lp, LP[:count]) and found.lost == 0


def test_an_array_of_r_has_no_names_of_stan(tmp_path: Path) -> None:
    """write.csv(as.array(fit)) puts the chain before each name."""
    file = tmp_path / "array.csv"
    file.write_text('"","chain:1.s","chain:2.s"\n"1",1.5,2.5\n"2",1.25,2.25\n')
    with pytest.raises(StanctError, match=r"array\.csv .*: chain:1\.s, chain:2\.s\. .*draws_df"):
        read_fit(file, SHAPES)


def test_several_files_have_no_draws(draws: dict[str, np.ndarray], tmp_path: Path) -> None:
    files = [write_csv(tmp_path / f"{k}.csv", draws, k) for k in (0, 1)]
    for paths, has in ((files, "have"), (files[:1], "has")):
        with pytest.raises(StanctError, match=rf"0\.csv {has} no draws of the parameter `t`"):
            read_fit(paths, {**SHAPES, "t": ()})


@pytest.mark.parametrize(
    ("name", "said"),
    [("b_condition", True), ("sd_subject__Intercept", True), ("b_Intercept", False), ("t", False)],
)
def test_names_that_brms_gives_are_told(name: str, said: bool) -> None:
    with pytest.raises(StanctError, match="no draws of the parameter `a`") as refused_:
        read_fit(pd.DataFrame({name: [1.0, 2.0]}), SHAPES)
    assert ("as_draws_df(fit$fit)" in str(refused_.value)) is said


def test_one_chain_without_its_axis(draws: dict[str, np.ndarray], tmp_path: Path) -> None:
    flat = {name: values[0] for name, values in draws.items()}
    assert np.array_equal(read_fit(flat, SHAPES).variables["a"], draws["a"][:1])
    one = frame(draws, "a[{},{}]").iloc[:5].drop(columns="chain__")
    assert np.array_equal(read_fit(one, SHAPES).variables["a"], draws["a"][:1])
    found = read_fit(write_csv(tmp_path / "one.csv", draws, 1), SHAPES)
    assert found.variables["a"] == pytest.approx(draws["a"][1:])


def test_unconstrained_draws(target: ProgramTarget, draws: dict[str, np.ndarray]) -> None:
    """Matrices go column by column, and bounded parameters by their logarithm."""
    assert target.parameter_shapes == SHAPES
    found = unconstrained(target, draws, np.random.default_rng(0))
    assert found.x.shape == (2, 5, 7)
    assert found.x[1, 3, :6] == pytest.approx(draws["a"][1, 3].ravel(order="F"))
    assert found.x[1, 3, 6] == pytest.approx(np.log(draws["s"][1, 3]))
    assert found.lost == 0


def test_draws_outside_the_support_are_lost(
    target: ProgramTarget, draws: dict[str, np.ndarray]
) -> None:
    draws["s"][0, 1] = -1e-9
    found = unconstrained(target, {**draws, "lp__": LP}, np.random.default_rng(0))
    assert found.x.shape == (2, 4, 7)
    assert found.lost == pytest.approx(0.1)
    assert found.lp is not None and np.array_equal(found.lp, [[0, 2, 3, 4], [5, 6, 7, 8]])
    draws["s"][0] = -1
    with pytest.raises(StanctError, match=r"outside the support[^.]*lower bound|outside the supp"):
        unconstrained(target, draws, np.random.default_rng(0))


ROUNDED = {
    "simplex[3] v": [0.123457, 0.234568, 0.641974],
    "unit_vector[3] v": [0.26726, 0.53452, 0.80178],
    "sum_to_zero_vector[3] v": [0.33333, 0.33333, -0.66667],
    "corr_matrix[2] v": [[1, 0.300001], [0.300002, 1]],
    "cov_matrix[2] v": [[2, 0.300001], [0.300002, 1]],
    "cholesky_factor_corr[2] v": [[1, 0], [0.6, 0.800001]],
    "ordered[2] v": [-1.0, 2.0],
}


@pytest.mark.parametrize("declared", ROUNDED)
def test_few_digits_are_rounding(declared: str, rng: np.random.Generator) -> None:
    """CmdStan writes six or eight digits, with which Stan itself no longer takes a simplex."""
    target = target_of(f"parameters {{ {declared}; }} model {{ target += 0; }}")
    value = np.array(ROUNDED[declared])
    found = unconstrained(target, {"v": np.tile(value, (1, 2, *[1] * value.ndim))}, rng)
    assert found.lost == 0
    back = target.density.constrain(found.x[0, 0])
    assert back == pytest.approx(value.ravel(order="F"), abs=1e-4)


def test_what_is_more_than_rounding_is_refused(rng: np.random.Generator) -> None:
    target = target_of("parameters { simplex[3] v; } model { target += 0; }")
    with pytest.raises(StanctError, match="Most draws of the mapping of draws are outside"):
        unconstrained(target, {"v": np.tile([0.2, 0.3, 0.4], (1, 5, 1))}, rng)


# Elements of a parameter of shape (2, 3), of which one is missing.
SOME = ((1, 1), (2, 1), (1, 2), (1, 3), (2, 3))


def summary(file: Path, end: str) -> Path:
    """What CmdStan's stansummary writes."""
    rows = "name,Mean,MCSE,StdDev,MAD,5%,50%,95%,ESS_bulk,ESS_tail,R_hat\nlp__,1,1,1,1,1,1,1,1,1,1"
    file.write_text(f"{rows}{end}\n", encoding="utf-8")
    return file


def refused(form: str, draws: dict[str, np.ndarray], folder: Path) -> Any:
    """A fit that cannot be read."""
    broken = folder / "broken.csv"
    broken.write_text("Gradient took\n1e-05 s\n1, 2, 3, 4\n", encoding="utf-8")
    other = folder / "other.csv"
    other.write_text("lp__,t\n1,2\n", encoding="utf-8")
    return {
        "parameter": {"a": draws["a"]},
        "shape": {**draws, "a": draws["a"][..., :2]},
        "lengths": {**draws, "s": draws["s"][:, :3]},
        "infinite": {**draws, "s": np.full((2, 5), np.nan)},
        "words": {**draws, "s": np.full((2, 5), "two")},
        "a column is missing": pd.DataFrame(
            {"s": [1.0], **{f"a[{i},{j}]": [1.0] for i, j in SOME}}
        ),
        "the last column is missing": frame(draws, "a[{},{}]").drop(columns=["a[1,3]", "a[2,3]"]),
        "no number in a row": frame(draws, "a[{},{}]").replace(
            {"a[1,2]": {draws["a"][1, 3, 0, 1]: "oops"}}
        ),
        "type": 3,
        "file": folder / "nowhere.csv",
        "netCDF": folder / "nowhere.nc",
        "no netCDF": other.rename(folder / "other.nc") if form == "no netCDF" else None,
        "no number": broken,
        "columns": [write_csv(folder / "0.csv", draws, 0), folder / "other.csv"],
        "empty": folder / "empty",
        "summary": summary(folder / "summary.csv", "\n# Samples were drawn by hmc"),
        "its table": summary(folder / "table.csv", ""),
    }[form]


REFUSED = {
    "parameter": "has no draws of the parameter `s`",
    "shape": r"have shape \(2, 5, 2, 2\); the program and the data need \(chains, draws, 2, 3\)",
    "lengths": "different numbers of draws",
    "infinite": r"`s` is not a finite number in draw 1 of chain 1 of the mapping of draws, the fir",
    "words": "Draws of `s` are not numbers",
    "a column is missing": r"The DataFrame has no column of `a\[2,2\]`",
    "the last column is missing": r"The DataFrame has no column of `a\[1,3\]`",
    "no number in a row": r"`a\[1,2\]` is not a finite number in row 9 of the DataFrame\.",
    "type": "A fit of the type 'int' cannot be read",
    "file": r"nowhere\.csv cannot be read",
    "netCDF": r"There is no file .*nowhere\.nc",
    "no netCDF": r"other\.nc cannot be read",
    "no number": r"broken\.csv is no CSV file of draws: .*[^.]\. Pass",
    "columns": "have different columns",
    "empty": "has no CSV files",
    "summary": r"summary\.csv is a summary of a fit, and has no draws\. Pass the CSV files",
    "its table": r"table\.csv is a summary of a fit",
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_cannot_be_read_is_refused(
    form: str, draws: dict[str, np.ndarray], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StanctError, match=REFUSED[form]):
        read_fit(refused(form, draws, tmp_path), SHAPES)


def test_what_is_no_sample_is_refused(target: ProgramTarget, draws: dict[str, np.ndarray]) -> None:
    still = {**draws, "s": np.full((2, 5), 2.0)}
    with pytest.raises(StanctError, match="All draws of `s` in the mapping of draws are the same"):
        sampled(target, still, np.random.default_rng(0))
    none = {name: values[:, :0] for name, values in draws.items()}
    with pytest.raises(StanctError, match="There is no draw in the mapping of draws"):
        sampled(target, none, np.random.default_rng(0))
    twice = {name: np.concatenate([values, values[:1]]) for name, values in draws.items()}
    with pytest.raises(StanctError, match="The chains 1 and 3 of the mapping of draws have the sa"):
        sampled(target, twice, np.random.default_rng(0))


@pytest.mark.parametrize("column", ["lp_approx__", "log_g__", "log_q__"])
def test_columns_tell_of_an_approximation(column: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"lp__": 0.0, column: 0.0, "s": np.arange(60.0)})
    frame.to_csv(tmp_path / "draws.csv", index=False)
    for fit in (frame, tmp_path / "draws.csv", dict(frame)):
        with pytest.raises(StanctError, match="draws of Pathfinder, Laplace or ADVI"):
            read_fit(fit, {"s": ()})


def test_the_length_of_a_unit_vector_is_lost(rng: np.random.Generator) -> None:
    """Stan's lp__ has a term of it, so that lp__ tells nothing of the program."""
    target = target_of("parameters { unit_vector[2] u; real x; } model { x ~ std_normal(); }")
    angle = rng.uniform(0, 6, (2, 5))
    fit = {"u": np.stack([np.cos(angle), np.sin(angle)], -1), "x": angle, "lp__": LP}
    assert unconstrained(target, fit, np.random.default_rng(0)).lp is None


def test_a_frame_is_a_base(rng: np.random.Generator) -> None:
    fit = pd.DataFrame({"x": rng.standard_normal(400)})
    model = stanct.temper("parameters { real x; } model { x ~ std_normal(); }")
    run = model.sample(None, "gibbs", base=fit, draws=50, warmup=32, seed=1, progress=False)
    assert isinstance(run.base, stanct.GaussianBase)
    assert run.base.mean == pytest.approx([fit["x"].mean()])


def test_files_are_a_base(rng: np.random.Generator, tmp_path: Path) -> None:
    x = rng.standard_normal(400)
    pd.DataFrame({"lp__": 0.0, "x": x}).to_csv(tmp_path / "fit.csv", index=False)
    model = stanct.temper("parameters { real x; } model { x ~ std_normal(); }")
    options: Any = {"draws": 50, "warmup": 32, "seed": 1, "progress": False}
    for fit in (str(tmp_path / "fit.csv"), tmp_path, [tmp_path / "fit.csv"]):
        run: Any = model.sample(None, "gibbs", base=fit, **options)
        assert run.base.mean == pytest.approx([x.mean()])
    with pytest.raises(StanctError, match=r"Did you mean base='pilot'"):
        model.sample(None, "gibbs", base="pilto", **options)


def test_what_is_a_fit(draws: dict[str, np.ndarray]) -> None:
    assert all(map(is_fit, (draws, container(draws), dataset(draws), pd.DataFrame())))
    assert not any(map(is_fit, ("pilot", 3, None, stanct.GaussianBase(np.zeros(1), np.eye(1)))))


@LONG
@pytest.mark.cmdstan
def test_a_fit_of_cmdstan(
    cmdstan_home: homes.Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object, its files and its ArviZ form give one log Z, which is right."""
    arviz, cmdstanpy = pytest.importorskip("arviz"), pytest.importorskip("cmdstanpy")
    # Not by cmdstanpy.set_cmdstan_path, which later tests would find.
    monkeypatch.setenv("CMDSTAN", str(cmdstan_home.path))
    file = tmp_path / "model.stan"
    file.write_text(SOURCE, encoding="utf-8")
    model = cmdstanpy.CmdStanModel(stan_file=str(file))
    told: dict[str, Any] = {"chains": 2, "iter_sampling": 500, "seed": 1, "show_progress": False}
    fit = model.sample({"N": 0}, **told)
    saved = model.sample({"N": 0}, **told, save_warmup=True)
    forms = [fit, list(fit.runset.csv_files), fit.draws_pd(), arviz.from_cmdstanpy(fit), saved]
    runs = [stanct.bridge(file, {"N": 0}, form, seed=1) for form in forms]
    for run in runs:
        assert run.is_reliable
        assert run.lp.shape == (2, 500)
        assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.4
        assert run.evidence.log_z == pytest.approx(runs[0].evidence.log_z, abs=1e-4)


TWO = "parameters { vector[2] x; } model { x ~ std_normal(); }"


@pytest.mark.parametrize("kind", ["frame", "table", "chains"])
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("x[1]", "x[1]", r"Two columns .*named 'x.1"),
        ("x[1]", "x[1000000000]", r"no column of `x\[2\]`"),
        ("x[1]", "x[3]", r"no column of `x\[2\]`"),
        ("x[1]", "x[1,2]", r"no column of `x\[2\]`"),
        ("x[2]", "x[1]", ""),
        ("x[0]", "x[1]", ""),
    ],
)
def test_columns_by_their_names(
    tmp_path: Path, kind: str, first: str, second: str, words: str
) -> None:
    draws = np.random.default_rng(1).standard_normal((60, 2))
    names = [first, second]
    fit: Any = tmp_path / "fit.csv"
    if kind == "chains":
        names = [name.replace("[", ".").replace(",", ".").strip("]") for name in names]
        rows = [f"0,{a},{b}" for a, b in draws]
        fit.write_text("\n".join(["# method = sample", f"lp__,{','.join(names)}", *rows, ""]))
    else:
        frame = pd.DataFrame(draws, columns=pd.Index(names))
        frame.insert(0, ".draw", range(1, 61))
        if kind == "frame":
            fit = frame
        else:
            frame.to_csv(fit, index=False)
    target = target_of(TWO, {})
    if words:
        with pytest.raises(StanctError, match=words):
            sampled(target, fit, np.random.default_rng(1))
        return
    x = sampled(target, fit, np.random.default_rng(1)).x[0]
    assert np.array_equal(x, draws[:, ::-1] if first == "x[2]" else draws)


@pytest.mark.parametrize("name", [".iteration", "draw__"])
def test_shuffled_rows_are_put_in_order(draws: dict[str, np.ndarray], name: str) -> None:
    """By the numbers of draws, within chains. A parameter may have such a name."""
    table = frame(draws, "a[{},{}]", 1)
    table[name] = [*range(5), *range(5)] if name == ".iteration" else range(10)
    found = read_fit(table.sample(frac=1, random_state=1), SHAPES)
    assert np.array_equal(found.variables["a"], draws["a"]) and found.numbered
    one = table.drop(columns="chain__")
    assert np.array_equal(read_fit(one, SHAPES).variables["s"].ravel(), draws["s"].ravel())
    bare = read_fit(one.drop(columns=name), SHAPES)
    assert not bare.numbered and np.array_equal(bare.variables["s"].ravel(), draws["s"].ravel())
    facts = {"fit": "it", "settings": {"chains": 2}, "numbered": False, "has_lp": False}
    order, program = decisions(facts)
    assert "numbers neither chains nor draws" in order and "no lp__" in program
    step = pd.DataFrame({"draw": [0.5, 0.1, 0.3], "x": 1.0})
    assert read_draws(step).variables["draw"].tolist() == [[0.5, 0.1, 0.3]]


def test_packed_files_and_chains_of_different_lengths(
    target: ProgramTarget, draws: dict[str, np.ndarray], tmp_path: Path
) -> None:
    for chain in range(2):
        plain = write_csv(tmp_path / f"{chain}.csv", draws, chain)
        (tmp_path / f"{chain}.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    assert np.array_equal(read_fit(tmp_path, SHAPES).variables["a"], draws["a"])
    frame = pd.DataFrame({"chain": [1] * 60 + [2] * 40, "x[1]": range(100), "x[2]": range(100)})
    found = read_fit(frame, {"x": (2,)})
    assert found.variables["x"].shape == (2, 40, 2) and found.lost == pytest.approx(0.2)
    assert found.origin == "the DataFrame (of the first 40 draws, as chain 2 has no more)"
    frame.loc[99, "chain"] = np.nan
    assert (
        "39 draws, as chain 2 has no more; without 1 row of no"
        in read_fit(frame, {"x": (2,)}).origin
    )


@pytest.mark.parametrize("number", [".iteration", "draw__"])
def test_rows_of_a_table_are_put_in_order(number: str) -> None:
    rng = np.random.default_rng(7)
    chain, own = np.repeat([1, 2], 30), np.tile(np.arange(1, 31), 2)
    counted = own if number == ".iteration" else np.arange(1, 61)
    table = pd.DataFrame({".chain": chain, number: counted, "s": rng.standard_normal(60)})
    mixed = table.iloc[rng.permutation(60)]
    right = read_fit(table, {"s": ()}).variables["s"]
    assert np.array_equal(read_fit(mixed, {"s": ()}).variables["s"], right)
    # Without chains, numbers that come twice order nothing.
    alone = read_fit(mixed.drop(columns=".chain"), {"s": ()}).variables["s"]
    kept = mixed["s"] if number == ".iteration" else table["s"]
    assert np.array_equal(alone[0], kept)
