"""stanct where neither the package nor the home folder can be written, as in many containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONG, ROOT

NO_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
IMPORT = """
import numpy as np
import stanct
from stanct.estimates.mixing import effective_size
from stanct.common import compiling
assert compiling.FOLDER is None and "site" in stanct.__file__, stanct.__file__
assert effective_size(np.random.default_rng(1).standard_normal((4, 100))) > 100
"""
RUN = """
from pathlib import Path
Path("model.stan").write_text("parameters { vector[3] x; } model { x ~ normal(0, 1); }")
model = stanct.temper("model.stan")
run = model.sample(
    method="gibbs", draws=200, warmup=150, chains=2, seed=1, progress=False
)
run.report("page.html")
run.save("run")
assert stanct.load("run").evidence == run.evidence and abs(run.evidence.log_z) < 0.1
"""


@pytest.fixture
def closed(tmp_path: Path):
    """Return a function that runs a script with a package and a home that it cannot write."""
    if os.name != "posix" or (os.geteuid() == 0 and not shutil.which(NO_RIGHTS[0])):
        pytest.skip("no way to take the rights away")
    site, home, work = tmp_path / "site", tmp_path / "home", tmp_path / "work"
    for name in ("stanct", "templates", "stan_models"):
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pyc*"))
    home.mkdir()
    work.mkdir()
    folders = [home, site, *(path for path in site.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)

    def run(script: str) -> None:
        before = NO_RIGHTS if os.geteuid() == 0 else []
        done = subprocess.run(
            [*before, sys.executable, "-W", "error", "-c", script],
            capture_output=True,
            text=True,
            cwd=work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "PYTHONPATH": str(site),
                "NUMBA_OPT": "0",
            },
        )
        assert done.returncode == 0, done.stderr
        assert not list(home.iterdir())

    yield run
    for folder in folders:
        folder.chmod(0o755)


@LONG
def test_the_import_and_a_whole_run(closed) -> None:
    """All kernels of a run are compiled in memory, quickly because without optimisation."""
    closed(IMPORT + RUN)
