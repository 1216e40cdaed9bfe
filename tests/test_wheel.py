"""A wheel and an sdist, made of what git knows, work in an environment that has only their dependencies."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def run(*command: str | Path, folder: Path) -> str:
    """The output of a command that must succeed, without this process's PYTHONPATH."""
    given = [str(word) for word in command]
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(given, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git knows, as they are now."""
    folder = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(clone: Path) -> Path:
    """The folder of the wheel and the sdist."""
    for kind in ("sdist", "wheel"):
        make = f"import setuptools.build_meta as b; b.build_{kind}('dist')"
        (clone / "dist").mkdir(exist_ok=True)
        run(sys.executable, "-c", make, folder=clone)
    return clone / "dist"


def empty_environment(folder: Path) -> Path:
    """A new environment that finds the dependencies of this one, but no Sparsona."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    packages = run(python, "-c", "import site; print(site.getsitepackages()[0])", folder=folder).strip()
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", folder=folder)  # an old one comes with venv
    Path(packages, "first.pth").write_text(site.getsitepackages()[0] + "\n")
    missing = "import importlib.util as u; print(u.find_spec('sparsona') is None, u.find_spec('torch') is not None)"
    assert run(python, "-c", missing, folder=folder).split() == ["True", "True"]
    return python


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_an_empty_environment_runs_the_demo(built: Path, pattern: str, tmp_path: Path) -> None:
    (package,) = built.glob(pattern)
    python = empty_environment(tmp_path / "environment")
    install = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", package)
    run(*install, folder=tmp_path)
    where = run(python, "-c", "import sparsona; print(sparsona.__file__)", folder=tmp_path)
    assert str(tmp_path) in where
    command = python.parent / "sparsona"
    assert run(command, "--version", folder=tmp_path).strip() in package.name
    absent = subprocess.run([command, "reproduce", "fedpse"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert absent.returncode == 2
    assert len(absent.stderr.splitlines()) == 1, absent.stderr
    told = run(command, "demo", "--rounds", "2", "--seeds", "1", folder=tmp_path)
    assert "pfedgate" in told
    assert (tmp_path / "runs" / "compare-digits-0" / "report.html").stat().st_size > 1_000_000


def test_the_wheel_has_types_and_assets_and_no_tests(built: Path) -> None:
    (package,) = built.glob("*.whl")
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
    assert {"sparsona/py.typed", "sparsona/report/assets/report.css"} <= set(names)
    assert any(name.startswith("sparsona/report/assets/echarts/") for name in names)
    assert not [name for name in names if not name.startswith(("sparsona/", "sparsona-"))]
    assert not [name for name in names if "papers" in name or "reproduce" in name], "another distribution"


def test_the_sdist_can_be_built_from(built: Path) -> None:
    (package,) = built.glob("*.tar.gz")
    with tarfile.open(package) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/sparsona/py.typed"} <= names
