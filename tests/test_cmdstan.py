"""The CmdStan engine: found, compiled once, equal to the embedded engine, clear when it fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cmdstanpy
import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from cost import trajectory_seconds
from generated import PROGRAMS
from sampled import sampled
from targets import LINE, SKEWED

from stanct.api.tempering import temper
from stanct.cli.main import main
from stanct.common.arrays import Array
from stanct.common.errors import EngineError, SamplingError, TooLittleTimeError
from stanct.common.resources import resource_folder
from stanct.engines import cmdstan, homes, opencl
from stanct.engines.cache import CACHE_VARIABLE, kept
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Nuts, Recipe
from stanct.engines.homes import Home
from stanct.path.bias import Bias, CopyBias, PowerBias
from stanct.path.gaussian import GaussianBase
from stanct.samplers.auto import Auto
from stanct.samplers.joint import Joint
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget
from stanct.targets.recipes import joint_recipe, pseudo_extended_recipe
from stanct.work.execution import executing

SOURCE = "parameters { real x; } model { target += std_normal_lpdf(x); }"
NO_POINT = 'parameters { real x; } model { reject("no such ", "point"); }'
STAN_MODELS, EXAMPLES = resource_folder("stan_models"), ROOT / "examples"
GAUSSIAN = STAN_MODELS / "gaussian" / "gaussian.stan"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A CmdStan that looks right and compiles nothing, and an empty cache."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "cmdstan-2.39.0"
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "stanc").touch()
    (path / "makefile").write_text("CMDSTAN_VERSION := 2.39.0\n")
    return Home(path, "2.39.0", False)


def compiler(monkeypatch: pytest.MonkeyPatch, calls: list[dict], wait: float = 0) -> None:
    """Replace the compiler by one that copies the source and remembers how it was called."""

    def compile_stan_file(source: Path, *, stanc_options: dict, cpp_options: dict) -> str:
        calls.append(stanc_options | cpp_options)
        barrier.wait(wait or None)
        source.with_suffix("").write_text(source.read_text())
        return str(source.with_suffix(""))

    barrier = threading.Barrier(2 if wait else 1)
    monkeypatch.setattr(cmdstanpy, "compile_stan_file", compile_stan_file)


def test_a_time_limit_says_that_the_compiler_took_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, [], wait=0.5)
    with (
        pytest.raises(TooLittleTimeError, match=r"draws that count\. CmdStan was compiling a prog"),
        executing(target_of(SOURCE), "joint", {}, seed=1, max_seconds=0.2, progress=False),
    ):
        CmdStan(home).compiled(SOURCE)


def test_a_program_is_compiled_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    first = CmdStan(home).compiled(SOURCE)
    assert first.read_text() == SOURCE
    assert CmdStan(home).compiled(SOURCE) == first and len(calls) == 1
    others = [
        CmdStan(home).compiled(SOURCE + " "),
        CmdStan(home, opencl=True).compiled(SOURCE),
        CmdStan(Home(home.path, "2.40.0", False)).compiled(SOURCE),
        CmdStan(home, optimise=False).compiled(SOURCE),
    ]
    assert len({first, *others}) == 5
    o1 = {"O1": True}
    assert calls == [o1, o1, {"STAN_OPENCL": "TRUE"}, o1, {}]
    CmdStan(home).compiled("functions { } // reduce_sum(f, x, 1)")
    assert calls[-1] == o1 | {"STAN_THREADS": "TRUE"}


def test_devices_and_settings_of_the_makefile_count(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    CmdStan(home, opencl=True).compiled(SOURCE)
    CmdStan(home, opencl=(1, 0)).compiled(SOURCE)
    on = {"STAN_OPENCL": "TRUE"}
    assert calls == [on, on | {"OPENCL_PLATFORM_ID": 1, "OPENCL_DEVICE_ID": 0}]
    plain = CmdStan(home).compiled(SOURCE)
    (home.path / "make").mkdir()
    (home.path / "make" / "local").write_text("STAN_AVX2 = TRUE\n")
    assert CmdStan(home).compiled(SOURCE) != plain


def test_two_builds_of_one_program_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls, wait=30)
    found: list[Path] = []
    builders = [
        threading.Thread(target=lambda: found.append(CmdStan(home).compiled(SOURCE)))
        for _ in range(2)
    ]
    before = os.environ["CMDSTAN"]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert os.environ["CMDSTAN"] == before
    assert len(calls) == 2 and found[0] == found[1] and found[0].exists()
    cache = found[0].parent.parent
    assert [path.name for path in cache.iterdir()] == [found[0].parent.name]


def test_a_build_that_fails_leaves_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_stan_file(source: Path, **_options: object) -> str:
        source.with_suffix("").touch()  # what an interrupted link leaves
        raise ValueError("Console:\ncc1plus: out of memory")

    monkeypatch.setattr(cmdstanpy, "compile_stan_file", compile_stan_file)
    with pytest.raises(EngineError, match=r"(?s)CmdStan 2\.39\.0.*cc1plus: out of memory"):
        CmdStan(home).compiled(SOURCE)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_program_that_cannot_be_optimised(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built as it was written; of two failures the second is told."""
    calls: list[dict] = []

    def compile_stan_file(source: Path, *, stanc_options: dict, cpp_options: dict) -> str:
        calls.append(stanc_options)
        if stanc_options or "broken" in source.read_text():
            raise ValueError(f"cc1plus: {len(calls)}")
        source.with_suffix("").touch()
        return str(source.with_suffix(""))

    monkeypatch.setattr(cmdstanpy, "compile_stan_file", compile_stan_file)
    assert CmdStan(home).compiled(SOURCE).exists()
    assert calls == [{"O1": True}, {}]
    with pytest.raises(EngineError, match="cc1plus: 4"):
        CmdStan(home).compiled("broken")


def test_a_cache_that_cannot_be_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(home.path / "makefile" / "below"))
    with pytest.raises(EngineError, match=r"cache of compiled .* cannot be written.*STANCT_CACHE"):
        CmdStan(home).compiled(SOURCE)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_the_cache_lies_where_the_system_keeps_caches(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, [])
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert CmdStan(home).compiled(SOURCE).parents[1] == tmp_path / "caches/stanct/cmdstan"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert CmdStan(home).compiled(SOURCE).parents[1] == tmp_path / "me/.cache/stanct/cmdstan"


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
@pytest.mark.parametrize("planted", ["folder", "executable", "owner"])
def test_what_someone_else_could_have_written_is_not_run(
    home: Home, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, [])
    executable = CmdStan(home).compiled(SOURCE)
    assert executable.stat().st_mode & 0o077 == executable.parent.stat().st_mode & 0o077 == 0
    if planted == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        owner = os.stat_result((0o700, *executable.stat()[1:4], 54321, *executable.stat()[5:]))
        monkeypatch.setattr(Path, "stat", lambda *_, **__: owner)
    else:
        (executable if planted == "executable" else executable.parent).chmod(0o707)
    with pytest.raises(EngineError, match=r"is not run, because another user.*(?s:.)*STANCT_CACHE"):
        CmdStan(home).compiled(SOURCE)


def test_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An official CmdStan outranks the assembled one; a home without stanc is none."""
    monkeypatch.delenv("CMDSTAN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    dot = tmp_path / ".cmdstan"
    assert homes.find() is None
    for name in ("cmdstan-stanct", "cmdstan-2.30.0"):
        (dot / name / "bin").mkdir(parents=True)
        (dot / name / "bin" / "stanc").touch()
        (dot / name / "makefile").write_text("CMDSTAN_VERSION := 2.30.0\n")
        if name == "cmdstan-stanct":
            (dot / name / "stanct.json").touch()
        found = homes.find()
        assert found is not None and found.path.name == name
        assert found.assembled == (name == "cmdstan-stanct")
    (dot / "cmdstan-2.30.0" / "bin" / "stanc").unlink()
    assert homes.find() is None


def test_engines_by_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = temper(GAUSSIAN), GAUSSIAN.with_name("gaussian.data.json")
    with pytest.raises(EngineError, match=r"No CmdStan was found.*`stanct install-cmdstan`"):
        model.sample(data, engine="cmdstan", draws=100)
    with pytest.raises(SamplingError, match=r"engine must be 'auto', .* or a CmdStan, not 'julia'"):
        model.sample(data, engine="julia")
    with pytest.raises(SamplingError, match="'ais' runs on the embedded engine alone"):
        model.sample(data, method="ais", engine="cmdstan")
    asked: list[object] = []
    monkeypatch.setattr(Joint, "run", lambda _method, job: asked.append(job.engine))
    monkeypatch.setattr(Auto, "run", lambda _method, job: asked.append(job.engine))
    monkeypatch.setattr(homes, "find", lambda: home)
    for method in ("joint", "auto"):  # a CmdStan that is there runs nothing unasked
        for engine in ("auto", "embedded", CmdStan(home)):
            model.sample(data, method, engine=engine)
    assert asked == 2 * [None, None, CmdStan(home)]


def test_without_cmdstanpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmdstanpy", None)
    with pytest.raises(EngineError, match=r"needs cmdstanpy.*pip install 'stanct\[cmdstan\]'"):
        CmdStan.here()


def test_doctor_says_what_is_there(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["doctor"])
    assert "cmdstan: none; add it: stanct install-cmdstan\n" in capsys.readouterr().out
    monkeypatch.setattr(homes, "find", lambda: home)
    main(["doctor"])
    told = capsys.readouterr().out
    assert f"cmdstan: CmdStan 2.39.0 (official) in {home.path}; " in told


POCL = """[POCL/*]    CL_PLATFORM_NAME    Portable Computing Language
[POCL/*]  #DEVICES    1
[POCL/0]    CL_DEVICE_NAME    a processor
[POCL/0]    CL_DEVICE_TYPE    CL_DEVICE_TYPE_CPU
"""
CUDA = """[NV/*]  #DEVICES    2
[NV/0]    CL_DEVICE_NAME    a card
[NV/0]    CL_DEVICE_TYPE    CL_DEVICE_TYPE_GPU
[NV/1]    CL_DEVICE_NAME    another card
[NV/1]    CL_DEVICE_TYPE    CL_DEVICE_TYPE_GPU
"""


def test_opencl_devices(
    home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A GPU comes before a processor that passes for a device, and both are listed."""
    clinfo = tmp_path / "clinfo"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("stanct.engines.cmdstan.find", lambda: home)
    assert opencl.devices() is None and opencl.preferred() == (0, 0)
    for told, count, best in ((POCL, 1, (0, 0)), (POCL + CUDA, 3, (1, 0)), ("", 0, None)):
        clinfo.write_text(f"#!/bin/sh\nprintf '%s' '{told}'\n")
        clinfo.chmod(0o755)
        assert len(opencl.devices() or []) == count
        assert CmdStan.here(opencl=(1, 1)).opencl == (1, 1)
        main(["doctor"])
        shown = capsys.readouterr().out
        if best is None:
            assert "no device; on Debian" in shown
            with pytest.raises(EngineError, match=r"no OpenCL device.*apt-get install clinfo"):
                CmdStan.here(opencl=True)
            continue
        assert opencl.preferred() == CmdStan.here(opencl=True).opencl == best
        assert "(0, 0): a processor, no GPU" in shown
        assert ("(1, 1): another card, GPU" in shown) == (count == 3)


@pytest.mark.parametrize(("name", "asked"), [("opencl", True), ("cmdstan", False)])
def test_an_engine_by_name(name: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that stands in for a CmdStan shows that the name has led to it."""

    def here(*, opencl: bool = False) -> CmdStan:
        raise EngineError(f"OpenCL: {opencl}", remedy="None.")

    monkeypatch.setattr(CmdStan, "here", here)
    with pytest.raises(EngineError, match=f"OpenCL: {asked}"):
        sampled("joint", target_of(LINE.source, LINE.data), engine=name, progress=False)


@pytest.fixture(scope="session")
def engine(cmdstan_home: Home) -> CmdStan:
    return CmdStan(cmdstan_home)


@LONG
@pytest.mark.cmdstan
def test_runs_equal_to_the_embedded_engine(engine: CmdStan, seed: int) -> None:
    """The same layout, and an evidence that agrees with the truth and with the other engine's."""
    target = target_of(LINE.source, LINE.data)
    run = sampled("joint", target, engine=engine, seed=seed, draws=600, progress=False)
    other = sampled("joint", target, seed=seed, draws=600, progress=False)
    assert (run.engine, other.engine) == ("cmdstan", "embedded")
    assert abs(run.evidence.log_z - LINE.log_z) < 4 * run.evidence.std_error
    assert run.evidence.std_error < 0.2
    for name in ("variables", "statistics"):
        mine, theirs = getattr(run, name), getattr(other, name)
        assert list(mine) == list(theirs)
        for key, values in mine.items():
            assert (values.shape, values.dtype) == (theirs[key].shape, theirs[key].dtype)
    assert run.gradients > run.statistics["n_leapfrog__"].sum()


@LONG
@pytest.mark.cmdstan
def test_runs_are_reproducible_for_any_number_of_threads(engine: CmdStan, seed: int) -> None:
    recipe = target_of(LINE.source, LINE.data).density_recipe
    names = {"b": (2,)}
    start = np.array([[0.1, -0.3], [0.5, 0.2], [-1.0, 0.0]])
    settings = {"seed": seed, "draws": 60, "step_size": 0.2, "inv_metric": np.array([0.3, 0.7])}
    one, two = (
        engine.draw(recipe, start, names, nuts=Nuts(threads=threads), **settings)
        for threads in (1, 3)
    )
    assert np.array_equal(one.variables["b"], two.variables["b"])
    assert set(np.unique(one.statistics["stepsize__"])) == {0.2}
    assert one.variables["b"].shape == (3, 60, 2)


@pytest.mark.cmdstan
def test_matrices_run_column_by_column(engine: CmdStan, seed: int) -> None:
    """Stan's order of a matrix in the unconstrained vector: chains go on where they ended."""
    recipe = Recipe("parameters { matrix[2, 3] z; real u; } model { }", "{}")
    starts = np.arange(14.0).reshape(2, 7)
    still = {"step_size": 1e-14, "inv_metric": np.ones(7), "draws": 1, "seed": seed}
    shapes = {"z": (2, 3), "u": ()}
    block = engine.draw(recipe, starts, shapes, nuts=Nuts(max_depth=1), **still)
    np.testing.assert_allclose(block.position(("z", "u")), starts, atol=1e-6)
    np.testing.assert_allclose(block.variables["z"][1, 0, 1], [8, 10, 12], atol=1e-6)


def log_densities(engine: CmdStan, recipe: Recipe, points: Array, folder: Path) -> Array:
    """Log density with Jacobian, then gradient, by the compiled program's `log_prob`, by row."""
    (folder / "data.json").write_text(recipe.data)
    (folder / "points.json").write_text(json.dumps({"params_r": points.tolist()}))
    command = [str(engine.compiled(recipe.source)), "log_prob", "jacobian=1"]
    command += [f"unconstrained_params={folder}/points.json", "data", f"file={folder}/data.json"]
    command += ["output", f"file={folder}/out.csv", "sig_figs=17"]
    cmdstanpy.utils.do_command(command, fd_out=None)
    return np.genfromtxt(folder / "out.csv", delimiter=",", comments="#")[1:]


def assert_equal_to_embedded(
    engine: CmdStan, recipe: Recipe, points: Array, folder: Path, tolerance: float
) -> None:
    """Log densities and gradients of both engines."""
    found = log_densities(engine, recipe, points, folder)
    density = Density(recipe)
    wanted = [[v, *g] for v, g in map(density.log_density_gradient, points)]
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.cmdstan
def test_equal_log_densities(engine: CmdStan, tmp_path: Path, rng: np.random.Generator) -> None:
    """The density program at 100 points."""
    target = target_of(SKEWED.source, SKEWED.data)
    points = rng.normal(size=(100, target.density.dimension))
    assert_equal_to_embedded(engine, target.density_recipe, points, tmp_path, 1e-9)


MODELS = {
    "radon": (EXAMPLES / "radon" / "radon.stan", None),
    "beta_binomial": (
        EXAMPLES / "beta_binomial" / "beta_binomial.stan", {"n": 550, "k": 115, "power": 1.0},
    ),
    "boltzmann": (STAN_MODELS / "boltzmann" / "boltzmann.stan", None),
    "decoder": (STAN_MODELS / "decoder" / "decoder.stan", None),
}  # fmt: skip


def model_target(name: str) -> ProgramTarget:
    """A model of `MODELS` with its data, by default those beside it."""
    program, data = MODELS[name]
    return temper(program).target(program.with_name(f"{name}.data.json") if data is None else data)


@LONG
@pytest.mark.cmdstan
def test_time_of_a_trajectory(engine: CmdStan) -> None:
    """It grows with the steps, not with the process."""
    recipe = target_of(LINE.source, LINE.data).density_recipe
    short, long = (trajectory_seconds(engine, recipe, steps) for steps in (1, 400_000))
    assert 0 < 3 * short < long
    with pytest.raises(EngineError, match="no such point"):
        trajectory_seconds(engine, Recipe(NO_POINT, "{}"), 1)


@pytest.mark.cmdstan
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("beta_binomial", "joint"),
        pytest.param("boltzmann", "joint", marks=LONG),
        pytest.param("decoder", "joint", marks=LONG),
        pytest.param("radon", "pseudo_extended", marks=LONG),
        pytest.param("radon", "powers", marks=LONG),
    ],
)
def test_equal_log_densities_of_tempered_programs(
    name: str,
    kind: str,
    engine: CmdStan,
    tmp_path: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tempered programs at 100 points, whitened coordinates and β's; all compile when optimised."""
    compiled = cmdstan._compile
    monkeypatch.setattr(
        cmdstan,
        "_compile",
        lambda *args, optimise: (
            compiled(*args, optimise=optimise)
            if optimise
            else pytest.fail("built without optimisation")
        ),
    )
    target = model_target(name)
    dimension = target.density.dimension
    base = GaussianBase(rng.normal(size=dimension), np.diag(rng.uniform(0.5, 1, dimension)))
    log_z = float(rng.normal(scale=10))
    if kind == "joint":
        copies, recipe = 1, joint_recipe(target, base, Bias.linear(log_z))
    else:
        copies, knots = 2, np.array([0, 0.1, 0.6, 1])
        bias = CopyBias(knots, log_z * np.sqrt(knots), -2 * knots)
        if kind == "powers":
            bias = PowerBias.between(log_z, (0.2, 0.9))
        recipe = pseudo_extended_recipe(target, base, bias, copies, None)
    points = rng.normal(size=(100, copies * (dimension + 1)))
    assert_equal_to_embedded(engine, recipe, points, tmp_path, 1e-9)


@pytest.mark.cmdstan
@pytest.mark.parametrize("name", ["regression", "funnel"])
def test_what_the_optimiser_keeps_whole(name: str, engine: CmdStan, tmp_path: Path) -> None:
    """The unconstrained parameters of the joint program stay in structs of arrays (SoA)."""
    code = tmp_path / "model.stan"
    code.write_text(generate(Program.from_file(PROGRAMS / f"{name}.stan"), "joint"))
    command = [str(engine.home.path / "bin" / "stanc"), "--O1", "--debug-mem-patterns"]
    done = subprocess.run(
        [*command, f"--o={tmp_path}/model.hpp", str(code)], capture_output=True, text=True
    )
    places = dict(re.findall(r"^\S.* (ct_[xz]): (\w+)$", done.stdout + done.stderr, re.MULTILINE))
    assert places == {"ct_z": "SoA", "ct_x": "SoA"}


EXTERNAL = """functions { real doubled(real x); }
generated quantities { real half = uniform_rng(1, 2); real whole = doubled(half); }"""
HEADER = """#include <ostream>
namespace external_model_namespace {
inline double doubled(double x, std::ostream*) { return 2 * x; }
}"""


@LONG
@pytest.mark.cmdstan
def test_functions_of_a_user_header(
    cmdstan_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cmdstanpy as it is: C++ beside the program, which has no parameters that NUTS could move.

    It is compiled anew for another makefile of the CmdStan.
    """
    monkeypatch.setenv("CMDSTAN", str(cmdstan_home.path))
    program = tmp_path / "external.stan"
    program.write_text(EXTERNAL)
    with pytest.raises(ValueError, match="doubled"):
        cmdstanpy.CmdStanModel(stan_file=program)

    def build(folder: Path) -> None:
        program, header = folder / "external.stan", folder / "functions.hpp"
        program.write_text(EXTERNAL)
        header.write_text(HEADER)
        cmdstanpy.CmdStanModel(stan_file=program, user_header=header)

    makefile = (cmdstan_home.path / "makefile").read_text(encoding="utf-8")
    told = [EXTERNAL, HEADER, str(cmdstan_home.path), cmdstan_home.version, makefile]
    model = cmdstanpy.CmdStanModel(exe_file=kept(told, "external", build))
    fit = model.sample(chains=1, iter_warmup=20, iter_sampling=50, show_progress=False)
    half, whole = fit.stan_variable("half"), fit.stan_variable("whole")
    np.testing.assert_allclose(whole, 2 * half, rtol=1e-7)  # 8 digits, as of CmdStan 2.37
    assert np.ptp(half) > 0.5
    assert (fit.method_variables()["n_leapfrog__"] == 1).all()  # NUTS, as of CmdStan 2.36


@pytest.mark.cmdstan
def test_opencl_equals_the_cpu(
    cmdstan_home: Home, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tempered programs whose last layer runs on an OpenCL device, beside the embedded engine."""
    if "STANCT_TEST_OPENCL" not in os.environ:
        pytest.skip("compiles for minutes: set STANCT_TEST_OPENCL=1")
    if not opencl.devices():
        pytest.skip(f"no OpenCL device on this machine: apt-get install {opencl.PACKAGES}")
    # A header costs 46 s of the processor, and saves each program 11.
    monkeypatch.setenv("PRECOMPILED_HEADERS", "false")
    engine = CmdStan(cmdstan_home, opencl=opencl.preferred())
    recipes = []
    for name in ("boltzmann", "decoder"):
        program = STAN_MODELS / name / f"{name}_opencl.stan"
        target = temper(program).target(program.with_name(f"{name}.data.json"))
        dimension = target.density.dimension
        base = GaussianBase(rng.normal(size=dimension), np.diag(rng.uniform(0.5, 1, dimension)))
        recipes.append(joint_recipe(target, base, Bias.linear(float(rng.normal(scale=10)))))
    with ThreadPoolExecutor() as pool:
        programs = list(pool.map(engine.compiled, [recipe.source for recipe in recipes]))
    for recipe, program in zip(recipes, programs, strict=True):
        points = rng.normal(size=(100, Density(recipe).dimension))
        assert_equal_to_embedded(engine, recipe, points, tmp_path, 1e-8)
        told = subprocess.run([program, "info"], capture_output=True, text=True, check=True).stdout
        assert re.search(r"STAN_OPENCL *= *true", told, re.IGNORECASE)


@pytest.mark.cmdstan
@pytest.mark.parametrize(
    ("name", "log_z"),
    [
        pytest.param("boltzmann", 27.9260092183, marks=LONG),
        ("beta_binomial", -17.1085823),
        pytest.param("decoder", -7.2925611023, marks=LONG),
    ],
)
def test_equal_evidence(name: str, log_z: float, engine: CmdStan, seed: int) -> None:
    """Within combined errors of the embedded engine's, and each within its own of the truth."""
    settings = {"seed": seed, "draws": 600, "progress": False}
    mine = sampled("joint", model_target(name), engine=engine, **settings).evidence
    other = sampled("joint", model_target(name), **settings).evidence
    for evidence in (mine, other):
        assert abs(evidence.log_z - log_z) < 4 * evidence.std_error < 0.8
    combined = np.hypot(mine.std_error, other.std_error)
    assert abs(mine.log_z - other.log_z) < 4 * combined


@pytest.mark.cmdstan
@pytest.mark.skipif(
    "STANCT_TEST_THREADS" not in os.environ, reason="compiles for minutes: set STANCT_TEST_THREADS"
)
def test_threads_that_share_a_gradient_give_the_same_evidence(engine: CmdStan, seed: int) -> None:
    target = temper(LINE.source, reduce_sum=True).target(LINE.data)
    found = [
        sampled(
            "joint", target, engine=engine, chains=2, threads=threads, seed=seed, draws=600,
            progress=False,
        ).evidence
        for threads in (2, 4)
    ]  # fmt: skip
    for evidence in found:
        assert abs(evidence.log_z - LINE.log_z) < 4 * evidence.std_error < 0.4


@pytest.mark.cmdstan
def test_chains_that_fail_are_told(engine: CmdStan) -> None:
    recipe = Recipe(NO_POINT, "{}")
    settings = {"seed": 1, "draws": 10, "step_size": 0.1, "inv_metric": np.ones(1)}
    with pytest.raises(EngineError) as caught:
        engine.draw(recipe, np.zeros((2, 1)), {"x": ()}, nuts=Nuts(threads=1), **settings)
    told = str(caught.value)
    assert "chain 1:" in told and "chain 2:" in told and "no such point" in told
    assert "id=2" in told or "sample" in told  # the command
