"""The documentation: links lead somewhere, commands and code run, claims name what exists."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
CLAIMS = [*(f"C{i}" for i in range(1, 13)), *(f"J{i}" for i in range(1, 7)), "K1", "B1"]
OTHERS = ("--data.task.", "--trainer.callbacks.", "--trainer.logger.")
"""Options of classes of the user's own, or of Lightning's."""
FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
SHORT = ["--trainer.max_steps", "4", "--trainer.val_check_interval", "2", "--trainer.logger", "false"]
OFF = ["--config", str(ROOT / "configs" / "diagnostics" / "off.yaml")]


def anchors(page):
    """Targets of a page's headings, as Markdown makes them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), target
        if page.parent.name == "docs":  # the site has nothing else
            assert there.is_relative_to(ROOT / "docs"), target
        assert not anchor or anchor in anchors(there), target


def test_the_site_names_every_page_and_no_other():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert site["strict"] is True
    assert sorted(page for entry in site["nav"] for page in entry.values()) == [page.name for page in PAGES]


def prepare(folder):
    for name in ("configs", "sweeps"):
        (folder / name).symlink_to(ROOT / name)


def commands(page):
    blocks = FENCED.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    return [line for language, block in blocks if language == "bash" for line in block.splitlines()]


def run(cli, command):
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "grok_lightning"], command
    job, *rest = words[3:]
    rest = [max(map(str, Path().glob(word))) if "*" in word else word for word in rest]
    more = [*OFF, *SHORT] if job == "fit" else ["--draws", "2000"] if job in ("report", "compare") else []
    done = cli(job, *rest, *more)
    assert done.status == 0, (command, done.err)
    return done


@pytest.mark.slow
def test_the_commands_of_the_tutorial_in_order(cli, tmp_path):
    prepare(tmp_path)
    lines = commands("tutorial.md")
    assert lines[0] == "pip install -c constraints.txt -e ."
    for line in lines[1:]:
        run(cli, line)
    assert (tmp_path / "report" / "report.html").exists()
    assert "2 runs" in (tmp_path / "report" / "report.html").read_text()
    assert "4 runs" in (tmp_path / "report_faster" / "report.html").read_text()


def how_to_files():
    blocks = FENCED.findall((ROOT / "docs" / "howto.md").read_text(encoding="utf-8"))
    return {block.split("\n", 1)[0].removeprefix("# "): block for language, block in blocks if language == "python"}


def test_the_how_tos_run_in_a_users_own_files_of_few_lines(cli, tmp_path):
    prepare(tmp_path)
    files = how_to_files()
    assert list(files) == ["own_task.py", "own_model.py", "own_data.py", "own_measurement.py"]
    for name, block in files.items():
        assert len(block.splitlines()) - 1 <= (40 if name == "own_data.py" else 30), name
        (tmp_path / name).write_text(block)
    shown = [run(cli, line).out for line in commands("howto.md")]
    assert "embedding: 12,672 parameters, lr 0.04" in shown[1]  # 99 tokens × 128, c = 4
    last = max(Path("runs/addition").iterdir(), key=lambda path: path.stat().st_mtime)
    lines = [yaml.safe_load(line) for line in (last / "metrics.jsonl").read_text().splitlines()]
    measured = {line["step"]: len(line["row_norms/each"]) for line in lines if "row_norms/each" in line}
    assert measured == {0: 99, 4: 99}


def test_own_data_and_net_get_c_clocks_curvature_and_spectra(cli, tmp_path):
    (tmp_path / "own_data.py").write_text(how_to_files()["own_data.py"])
    (command,) = [line for line in commands("howto.md") if "own_data" in line]
    flags = ["--trainer.max_steps", 20, "--trainer.val_check_interval", 10, "--trainer.logger", "false"]
    done = cli(*shlex.split(command)[3:], *flags, "--hessian.every_n_steps", 10, "--ntk.every_n_steps", 20)
    assert done.status == 0, done.err
    assert "embedding: 144 parameters, lr 0.04" in done.out  # 9 tokens x 16, c = 4
    (run,) = (tmp_path / "runs" / "Median").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "hessian/W/lambda_max" in line] == [0, 10, 20]
    last = {key: value for line in lines for key, value in line.items()}
    assert len(last["spectrum/E/sigma"]) == 9
    assert {"clock/grokked", "spectrum/first_weight/erank", "ntk/E/one_minus_cka", "health/E/param_norm"} < last.keys()
    assert json.loads((run / "summary.json").read_text())["clocks_steps"].keys() >= {"t_mem", "t_grok"}


def test_every_claim_has_a_row_that_names_what_exists():
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("| ")}
    assert [name for name in rows if re.fullmatch(r"[CJKB]\d+", name)] == CLAIMS
    for name in CLAIMS:
        cells = [cell.strip() for cell in rows[name].strip("|").split("|")]
        assert len(cells) == 4, name
        assert all(cells), name
        for file in re.findall(r"(?:configs|sweeps)/[\w/]+\.yaml", rows[name]):
            assert (ROOT / file).exists(), file


def test_every_promise_names_a_test_that_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_the_page_of_options_is_what_the_parsers_say():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_options.py"), "--check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_every_flag_that_a_page_names_is_an_option():
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `(--[\w.]+)`", text, re.MULTILINE))
    groups = {flag.partition(".")[0] for flag in known if "." in flag}
    for page in (ROOT / "README.md", *PAGES):
        for flag in re.findall(r"(--\w+(?:\.\w+)+)\b", page.read_text(encoding="utf-8")):
            own = flag.startswith(OTHERS) or flag.endswith(".help") or flag == "--data.n"  # of a how-to's own class
            whole = any(name.startswith(f"{flag}.") for name in known)  # --model.embedding '{rank: 4}'
            assert own or whole or flag.partition(".")[0] not in groups or flag in known, (page.name, flag)
