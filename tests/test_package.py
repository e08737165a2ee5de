"""The wheel holds the templates and models, and works without the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import LONG, ROOT

import stanct
from stanct.common.errors import StanctError
from stanct.common.resources import resource_folder


def test_public_names_exist_and_are_documented() -> None:
    for name in stanct.__all__:
        assert getattr(stanct, name).__doc__, name


def test_an_editable_install_finds_the_folders_of_the_checkout() -> None:
    assert resource_folder("templates") == ROOT / "templates"
    assert resource_folder("stan_models") == ROOT / "stan_models"
    with pytest.raises(StanctError, match="'nothing' is missing"):
        resource_folder("nothing")


def test_the_wheel_works_alone(tmp_path: Path) -> None:
    """Build the wheel, unpack it, and temper a program with nothing else of ours in sight."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert (site / "stanct" / "py.typed").exists()
    for name in ("makefile", "README.md", "src/main.cpp", "examples/bernoulli/bernoulli.stan"):
        assert (site / "stanct" / "engines" / "cmdstan_home" / name).exists()
    assert not (site / "templates").exists()
    model = tmp_path / "line.stan"
    model.write_text("parameters { real<lower=0> s; } model { s ~ exponential(1); }")
    code = (
        "import json, sys, stanct; from stanct.common.resources import resource_folder\n"
        "print(json.dumps([stanct.__file__, stanct.temper(sys.argv[1]).stan_code(),"
        " str(resource_folder('stan_models'))]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(model)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    file, program, models = json.loads(done.stdout)
    assert file.startswith(str(site)) and models.startswith(str(site))
    assert "ct_log_weight_target" in program


def test_the_sdist_makes_the_same_wheel(tmp_path: Path) -> None:
    """Whoever builds from the sdist must find all that the wheel from the checkout has."""

    def built(kind: str, source: Path, out: Path) -> Path:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
        return next(out.iterdir())

    with tarfile.open(built("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    found = {path.name for path in source.iterdir()}
    assert {"CITATION.cff", "LICENSE", "README.md", "tests", "docs"} <= found
    names = []
    for number, folder in enumerate((ROOT, source)):
        with zipfile.ZipFile(built("wheel", folder, tmp_path / f"wheel{number}")) as wheel:
            names.append(sorted(n for n in wheel.namelist() if "__pycache__" not in n))
    assert names[0] == names[1]
    assert f"stanct-{stanct.__version__}.dist-info/METADATA" in names[0]


@pytest.mark.parametrize("url", ["", "https://host.example/stanct"])
def test_the_description_has_no_link_into_a_clone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index page has no files of ours; where there is a public repository, links lead there."""
    monkeypatch.setenv("STANCT_URL", url)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith("/METADATA"))
        told = wheel.read(name).decode()
    links = re.findall(r"\]\(([^)]*)\)", told)
    paths = [link.removeprefix(f"{url}/").split("/", 2)[2] for link in links]
    assert bool(paths) == bool(url) and all((ROOT / path).exists() for path in paths)
    assert ("Project-URL: Source, " + url in told) == bool(url)
    assert "methods" in told and "in a fresh clone" in told.lower()


def test_one_version_everywhere() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", changes, re.M)[0] in (stanct.__version__, "Unreleased")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {stanct.__version__}\n" in citation


@LONG
@pytest.mark.parametrize("folder", sorted((ROOT / "stan_models").iterdir()), ids=lambda p: p.name)
def test_shipped_models_reach_their_truth(folder: Path, seed: int) -> None:
    """log Z and the recorded means of every model in stan_models, by a short joint run."""
    truth = json.loads((folder / "truth.json").read_text())
    data = folder / f"{folder.name}.data.json"
    run = stanct.temper(folder / f"{folder.name}.stan").sample(
        data if data.exists() else None, draws=1500, seed=seed, progress=False
    )
    assert abs(run.evidence.log_z - truth["log_z"]) < 4 * run.evidence.std_error
    assert run.evidence.std_error < 0.25
    for name, mean in truth["mean"].items():
        found = run.expect(name)
        assert (abs(found.value - mean) < 4 * found.std_error + 1e-9).all(), name
