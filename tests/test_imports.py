"""Who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "grok_lightning"
DATA = ("data.tasks", "data.splits", "data.batches", "data.samplers")
PURE = ("nets", "numerics", "optim", *DATA, "metric_keys", "errors", "records", "saved")
PURE_MAY = {"torch", "numpy", "scipy", "grok_lightning", *sys.stdlib_module_names}
GLUE = {  # package → what of ours it must not import
    "callbacks": (
        "cli",
        "modules.mlp",
        "modules.transformer",
        "modules.language",
        "nets.mlp",
        "nets.transformer",
        "nets.language",
        "sweep",
        "compare",
    ),
    "modules": ("cli", "callbacks", "numerics", "data.datamodule", "data.tasks", "data.splits"),
    "loggers": ("cli", "callbacks", "modules", "numerics", "nets", "data"),
    "data": ("cli", "callbacks", "modules", "loggers", "numerics", "nets", "optim"),
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


def is_inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


@pytest.mark.parametrize("path", [f for f in FILES if is_inside(module_name(f), PURE)], ids=module_name)
def test_pure_code_imports_only_torch_the_standard_library_and_pure_code(path):
    for name in imports(path):
        assert name.split(".")[0] in PURE_MAY, name
        if name.startswith("grok_lightning."):
            assert is_inside(name.removeprefix("grok_lightning."), PURE), name


@pytest.mark.parametrize("path", [f for f in FILES if module_name(f).split(".")[0] in GLUE], ids=module_name)
def test_glue_imports_in_one_direction(path):
    forbidden = GLUE[module_name(path).split(".")[0]]
    ours = {name.removeprefix("grok_lightning.") for name in imports(path) if name.startswith("grok_lightning.")}
    assert not {name for name in ours if is_inside(name, forbidden)}


def test_no_file_is_left_out_of_the_rules():
    known = (
        *PURE,
        *GLUE,
        "cli",
        "jobs",
        "__main__",
        "__init__",
        "arguments",
        "audit",
        "audit_sources",
        "leaving",
        "notebook",
        "parser",
        "recorded",
        "refusals",
        "resume",
        "slurm",
        "yaml_files",
        "compare",
        "sweep",
        "report",
    )
    assert not [module_name(f) for f in FILES if not is_inside(module_name(f), known)]


@pytest.mark.parametrize(
    ("module", "unloaded"),
    [("grok_lightning", ["torch", "lightning"]), ("grok_lightning.numerics.hvp", ["lightning", "wandb"])],
)
def test_a_fresh_interpreter_loads_no_more_than_it_needs(module, unloaded):
    code = f"import sys, {module}; sys.exit(any(name in sys.modules for name in {unloaded!r}))"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_help_loads_neither_torch_nor_lightning():
    code = "import sys; from grok_lightning.__main__ import run; run(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0
    assert "fit" in done.stdout


def test_no_module_is_longer_than_250_lines():
    assert not {str(f): n for f in FILES if (n := len(f.read_text(encoding="utf-8").splitlines())) > 250}
