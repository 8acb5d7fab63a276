"""Which module may import which, and what `import rmsfast` costs."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import rmsfast

FOLDER = Path(rmsfast.__file__).parent
# A module imports from layers above its own in this list, or from its neighbours in one
# direction only. The package itself (its public names) stands where `__init__` does.
LAYERS = [
    ["_extras", "_forks", "_formats", "_partial", "_layout"],
    [
        "_compiler",
        "_parallel",
        "_vectors",
        "_terms",
        "_memory",
        "_runs",
        "_lanes",
        "_column_lanes",
        "_swift",
        "_edges",
        "_stores",
        "_kernels",
        "_column_kernels",
        "_scalings",
        "_relative",
        "_continued",
        "_summary_lanes",
        "_moment_lanes",
        "_match_lanes",
        "_describe_kernels",
        "_compare_kernels",
        "_complex_lanes",
        "_complex_kernels",
        "_roundings",
        "_doses",
        "_dose_fields",
        "_dose_lines",
        "_dose_kernels",
        "_window_lanes",
        "_window_kernels",
        "_sweeps",
    ],
    ["_launch", "_cache", "_arguments", "reference"],
    [
        "_sums",
        "_inputs",
        "_scaled",
        "_ratios",
        "_small",
        "_small_reductions",
        "_small_summaries",
        "_small_scalings",
        "_window_sums",
        "_reports",
    ],
    [
        "_dose_report",
        "_dosing",
        "_small_doses",
        "_gains",
        "reductions",
        "scaling",
        "summaries",
        "windows",
        "dose",
        "running",
    ],
    ["settings"],
    ["__init__"],
    ["files", "dask", "xarray", "plots", "machine", "hardware", "problems", "visits", "roofline"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(FOLDER.rglob("*.py"))


def module_of(path):
    """Name of a module; a folder of modules counts as one."""
    return path.relative_to(FOLDER).parts[0].removesuffix(".py")


MODULES = sorted({module_of(path) for path in FILES})
# Beyond NumPy and the standard library, these import what they are made for.
MAY_IMPORT = {
    "_compiler": {"numba", "llvmlite"},
    "_parallel": {"numba", "llvmlite"},
    "_vectors": {"numba", "llvmlite"},
    "_runs": {"numba", "llvmlite"},
    "_lanes": {"numba", "llvmlite"},
    "_column_lanes": {"numba", "llvmlite"},
    "_memory": {"numba", "llvmlite"},
    "_terms": {"numba", "llvmlite"},
    "_swift": {"numba", "llvmlite"},
    "_edges": {"numba", "llvmlite"},
    "_stores": {"numba", "llvmlite"},
    "_kernels": {"numba"},
    "_column_kernels": {"numba"},
    "_scalings": {"numba"},
    "_relative": {"numba"},
    "_continued": {"numba"},
    "_summary_lanes": {"numba", "llvmlite"},
    "_moment_lanes": {"numba", "llvmlite"},
    "_match_lanes": {"numba"},
    "_describe_kernels": {"numba"},
    "_compare_kernels": {"numba"},
    "_complex_lanes": {"numba", "llvmlite"},
    "_complex_kernels": {"numba"},
    "_roundings": {"numba", "llvmlite"},
    "_doses": {"numba", "llvmlite"},
    "_dose_lines": {"numba", "llvmlite"},
    "_dose_kernels": {"numba"},
    "_window_lanes": {"numba", "llvmlite"},
    "_window_kernels": {"numba"},
    "_sweeps": {"numba", "llvmlite"},
    "_cache": {"numba"},
    "cli": {"click", "rich"},
    "dask": {"dask"},
    "plots": {"matplotlib"},  # while types are checked
    "xarray": {"xarray"},
}


def imported(tree, *, at_import):
    """Dotted names of the imports in a tree; with `at_import` those outside functions only."""
    pending, found = [tree], set()
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # `from rmsfast import files` imports a module, `from rmsfast import rms` the package.
            within = node.module == "rmsfast"
            found |= {
                f"rmsfast.{a.name}" if within and a.name in MODULES else node.module
                for a in node.names
            }
        if not (at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            pending += ast.iter_child_nodes(node)
    return found


@cache
def syntax(module):
    trees = [ast.parse(path.read_text()) for path in FILES if module_of(path) == module]
    return ast.Module([node for tree in trees for node in tree.body], type_ignores=[])


# A result draws itself when asked to: the one import that points up, made when it is called.
UP = {"reference": {"plots"}}


def neighbours(module):
    """Modules of the package that a module imports, wherever it does."""
    parts = [n.split(".") for n in imported(syntax(module), at_import=False)]
    found = {p[1] if len(p) > 1 else "__init__" for p in parts if p[0] == "rmsfast"}
    return found - {module} - UP.get(module, set())


@pytest.mark.parametrize("module", MODULES)
def test_import_of_package_module_points_down(module):
    assert module in LEVEL, "a new module needs a place in LAYERS"
    assert {n: LEVEL[n] for n in neighbours(module) if LEVEL[n] > LEVEL[module]} == {}


def test_import_between_package_modules_has_no_cycle():
    remaining = {module: neighbours(module) & set(MODULES) for module in MODULES}
    while free := {m for m, needs in remaining.items() if not needs & set(remaining)}:
        remaining = {m: needs for m, needs in remaining.items() if m not in free}
    assert remaining == {}


def test_import_of_reference_takes_nothing_from_the_package():
    assert neighbours("reference") == set()


@pytest.mark.parametrize("module", MODULES)
def test_import_of_module_takes_only_numpy_and_its_own_subject(module):
    roots = {name.partition(".")[0] for name in imported(syntax(module), at_import=True)}
    foreign = roots - sys.stdlib_module_names - {"numpy", "rmsfast"}
    assert foreign <= MAY_IMPORT.get(module, set())


def loaded_by(statement):
    """Top-level packages in memory after a statement in a fresh interpreter."""
    program = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    command = [sys.executable, "-W", "error", "-c", program]
    run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=FOLDER.parent)
    return set(run.stdout.split())


def test_import_of_package_loads_the_standard_library_only():
    assert loaded_by("import rmsfast") - sys.stdlib_module_names - loaded_by("pass") == {"rmsfast"}


def test_import_of_function_loads_numpy_and_the_standard_library_only():
    added = loaded_by("from rmsfast import rms") - loaded_by("import numpy")
    assert added - sys.stdlib_module_names == {"rmsfast"}


def test_attribute_of_package_that_is_none_is_refused():
    with pytest.raises(AttributeError, match=r"^module 'rmsfast' has no attribute 'rsm'$"):
        rmsfast.rsm  # noqa: B018 - it is the look-up that fails


def test_import_of_package_offers_its_public_names_only():
    public = {name for name in dir(rmsfast) if not name.startswith("_")}
    assert public - set(MODULES) == set(rmsfast.__all__)
    assert rmsfast.__version__
