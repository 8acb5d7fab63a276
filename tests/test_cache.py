"""Compiled code on disk: never stale, never in the way of an answer."""

import ast
import shutil
from pathlib import Path

import pytest
from processes import run

import rmsfast
from rmsfast import _cache, _launch

FOLDER = Path(rmsfast.__file__).parent
COUNT = "from processes import *; print(warned(check_light, ['roots', 'fold_partials']))"
HITS = """
from processes import check_light
check_light(["roots", "fold_partials"])
from rmsfast import _launch
kernels = _launch.kernels()
for stats in (kernels.roots.stats, kernels.fold_partials.stats):
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
HIT, MISSED = "1 0\n1 0", "0 1\n0 1"  # both kernels


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache with the code of two kernels."""
    folder = tmp_path_factory.mktemp("filled")
    run(COUNT, NUMBA_CACHE_DIR=folder)
    return folder


@pytest.fixture
def cache(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "cache")


def copied_package(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "rmsfast", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


# ------------------------------------------------------------------------ damaged files


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file):
    file.write_bytes(b"")


def garble(file):
    file.write_bytes(bytes(range(256)) * 8)


def hide(file):
    """Leave something that can be neither read nor replaced."""
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [truncate, empty, garble])
def test_damaged_cache_files_are_replaced_without_a_warning(cache, damage):
    damaged = [*cache.rglob("*.roots-*.nbi"), *cache.rglob("*.fold_partials-*.nbc")]
    assert len(damaged) == 2
    for file in damaged:
        damage(file)
    assert run(COUNT, NUMBA_CACHE_DIR=cache) == "0"
    assert run(HITS, NUMBA_CACHE_DIR=cache) == HIT


def test_cache_files_that_cannot_be_read_or_replaced_cost_one_warning(cache):
    for file in [*cache.rglob("*.nbi"), *cache.rglob("*.nbc")]:
        hide(file)
    (cache / "x.nbi").touch()
    assert run(COUNT, NUMBA_CACHE_DIR=cache) == "1"


def test_cache_on_a_full_disk_costs_one_warning(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    assert run(limit + COUNT, NUMBA_CACHE_DIR=tmp_path) == "1"


# ----------------------------------------------------------------------------- locations


def test_cache_folder_that_was_filled_is_used_though_it_is_read_only(cache):
    read_only = """
import tempfile
def refuse(*_args, **_options):
    raise PermissionError
tempfile.TemporaryFile = refuse
import rmsfast
assert rmsfast.show_config("dicts")["cache"]["state"] == "read-only"
"""
    assert run(read_only + HITS, NUMBA_CACHE_DIR=cache) == HIT


def test_cache_folder_that_cannot_be_made_costs_one_warning(tmp_path):
    (tmp_path / "file").touch()
    assert run(COUNT, NUMBA_CACHE_DIR=tmp_path / "file" / "cache") == "1"


def test_cache_of_a_read_only_install_is_below_the_home(tmp_path):
    package = copied_package(tmp_path)
    (package / "rmsfast" / "__pycache__").touch()  # so that it is no folder
    home = tmp_path / "home"
    where = {
        "NUMBA_CACHE_DIR": None,
        "XDG_CACHE_HOME": None,
        "HOME": home,
        "PYTHONDONTWRITEBYTECODE": 1,
    }
    assert run(COUNT, package=package, **where) == "0"
    assert any(home.rglob("*.nbc"))


def test_cache_of_a_read_only_install_without_a_home_costs_one_warning(tmp_path):
    package = copied_package(tmp_path)
    (package / "rmsfast" / "__pycache__").touch()
    homeless = "import pwd\npwd.getpwuid = {}.__getitem__\n"  # an unknown user
    where = {
        "NUMBA_CACHE_DIR": None,
        "XDG_CACHE_HOME": None,
        "HOME": None,
        "PYTHONDONTWRITEBYTECODE": 1,
    }
    assert run(homeless + COUNT, package=package, **where) == "1"


def test_cache_of_another_processor_is_not_used(cache):
    assert run(HITS, NUMBA_CACHE_DIR=cache, NUMBA_CPU_NAME="generic") == MISSED


# ------------------------------------------------------------------------------ staleness


def test_edited_helper_file_never_yields_stale_code(tmp_path):
    package = copied_package(tmp_path)
    helper = package / "rmsfast" / "_lanes.py"
    original = helper.read_text()
    edit = """
from numba import njit

@njit
def two_product(a, b):
    return 0.0, 0.0
"""

    def answer():
        program = "from processes import light; print(light())"
        return run(program, package=package, NUMBA_CACHE_DIR=tmp_path / "cache")

    assert answer() == "2.5"
    helper.write_text(original + edit)
    assert answer() == "3.75"  # the root is corrected by its whole square, over twice the root
    helper.write_text(original)
    assert answer() == "2.5"


@pytest.mark.parametrize("name", _cache.SOURCES)
def test_digest_changes_with_each_source(monkeypatch, name):
    sources = {source: source.encode() for source in _cache.SOURCES}
    monkeypatch.setattr(_cache.pkgutil, "get_data", lambda _package, source: sources[source])
    before = _cache.digest.__wrapped__()
    sources[name] += b"# edited"
    assert _cache.digest.__wrapped__() != before


def test_digest_covers_every_file_that_kernels_import():
    pending, found = [f"{name}.py" for name in (*_launch.MODULES, "_sweeps")], set()
    while pending:
        file = pending.pop()
        found.add(file)
        for node in ast.walk(ast.parse((FOLDER / file).read_text())):
            module = getattr(node, "module", None) or ""
            if module.startswith("rmsfast."):
                pending += {f"{module.split('.')[1]}.py"} - found
    assert found == set(_cache.SOURCES)


def test_code_from_different_processes_keeps_apart(tmp_path):
    # The first format that a process compiles has the same number, and name, in each.
    program = """
    import numpy as np
    import rmsfast
    x = np.ones((8, 1000), np.float16)
    calls = {"half": lambda: rmsfast.rms(x)}
    calls["brain"] = lambda: rmsfast.rms(x.view(np.uint16), format="bfloat16")
    for name in NAMES:
        print(calls[name]()[0])
    """
    answers = {"brain": "0.0078125", "half": "1.0"}
    for names in (["brain"], ["half"], ["brain", "half"]):
        printed = run(program.replace("NAMES", str(names)), NUMBA_CACHE_DIR=tmp_path)
        assert printed.splitlines() == [answers[name] for name in names]
