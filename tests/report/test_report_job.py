"""The report command: pages of one and of several runs, refusals, and nothing half-written."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
import short_run
import yaml
from compare.synthetic import settings, write_run, write_runs
from report.page_checks import check
from report.recorded_runs import write

from grok_lightning.compare.comparison import compare
from grok_lightning.compare.tables import sheets
from grok_lightning.report import save

FIGURES = [
    "accuracy", "lambda_max", "singular_values", "ranks", "balance", "token_probabilities", "token_gradients",
    "fourier", "fourier_progress", "tangent_kernel", "two_phase", "health",
]  # fmt: skip


def page_of(path):
    return check((Path(path) / "report.html").read_text(encoding="utf-8"))


def test_one_run_gives_a_page_and_every_figure_in_three_formats(cli, tmp_path):
    run = write(tmp_path / "run")
    done = cli("report", run)
    assert (done.status, done.err) == (0, "")
    folder = run / "figures"
    expected = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "pdf")} | {"report.html"}
    assert {file.name for file in folder.iterdir()} == expected
    assert (folder / "accuracy.pdf").read_bytes().startswith(b"%PDF-")
    assert b"<svg" in (folder / "accuracy.svg").read_bytes()
    page = page_of(folder)
    assert len(page.images) == len(FIGURES)
    assert ["T_grok", "1000 steps, sustained from 1000; val accuracy ≥ 0.95"] in page.rows
    assert ["model.c", "10"] in page.rows
    assert ["torch", "2.13.0"] in page.rows
    assert ["status", "completed"] in page.rows
    assert "arXiv:2505.15624, Fig. 7" in page.text
    assert done.out.splitlines() == [f"12 figures in {folder}", f"page: {folder / 'report.html'}"]


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(cli, tmp_path):
    run = write(tmp_path / "run")
    for name in ("a", "b"):
        assert cli("report", run, "--out", name, "--formats", "svg").status == 0
    for file in sorted(Path("a").iterdir()):
        assert file.read_bytes() == (Path("b") / file.name).read_bytes(), file.name


def test_a_run_of_fit_can_be_drawn(cli):
    run = short_run.fit("--spectrum.every_n_steps", "5", "--health.every_n_steps", "10")
    done = cli("report", run.path, "--formats", "png")
    assert (done.status, done.err) == (0, "")
    page = page_of(run.path / "figures")
    assert "Largest eigenvalue of the Hessian by block: not recorded" in page.text
    assert "T_grok was not reached by step 20" in page.text
    assert ["data.p", "11"] in page.rows


def test_what_comes_from_files_is_escaped(cli, tmp_path):
    bad = "<script>alert(1)</script>\"'&$\\frac{"
    config = settings(data__p=7, data__task=bad)
    config["note"] = {"<img src=x onerror=alert(2)>": "javascript:alert(3)"}
    run = write(tmp_path / "<b>x$_{&", config=config, provenance={"torch": bad}, status="failed", reason=bad)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 0, f"spectrum/{bad.replace('/', '')}/erank": 1.0}) + "\n")
    done = cli("report", run, "--out", "out")
    assert (done.status, done.err) == (0, "")
    page = page_of("out")  # no script, no handler, nothing to fetch
    assert bad in page.text
    assert ["data.task", bad] in page.rows
    assert ["note.<img src=x onerror=alert(2)>", "javascript:alert(3)"] in page.rows
    assert page.text.startswith("<b>x$_{&")
    for file in Path("out").glob("*.svg"):
        tags = {element.tag.rsplit("}", 1)[-1] for element in ElementTree.parse(file).iter()}
        assert "script" not in tags
        assert "path" in tags


@pytest.mark.slow
def test_several_runs_with_such_names_are_escaped_too(cli, tmp_path):
    bad = "<script>$\\x</script>"
    for seed in (0, 1):
        write_run(tmp_path / f"<i>{seed}", 500, config=settings(seed=seed, data__task=bad), last=1000)
        write_run(tmp_path / f"&amp;{seed}", 600, config=settings(seed=seed, data__task="b"), last=1000)
    done = cli("report", tmp_path, "--draws", "2000", "--formats", "png", "--out", "out")
    assert (done.status, done.err) == (0, "")
    page = page_of("out")
    assert any(bad in row for row in page.rows)
    assert any(str(tmp_path / "&amp;0") in row for row in page.rows)


@pytest.mark.parametrize(
    ("status", "label"), [("failed", "failed"), ("interrupted", "interrupted"), (None, "unfinished")]
)
@pytest.mark.slow
def test_partial_runs_are_drawn_and_labelled(cli, tmp_path, status, label):
    run = write(tmp_path / "run", status=status, reason="OSError: disk full")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1000, "val/a')  # killed while it wrote
    assert cli("report", run, "--formats", "png").status == 0
    page = page_of(run / "figures")
    assert label in page.texts
    assert "partial" in page.text
    assert ("OSError: disk full" in page.text) is (status is not None)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "provenance.json"])
@pytest.mark.slow
def test_a_run_without_one_of_its_files_is_drawn_as_far_as_it_goes(cli, tmp_path, name):
    run = write(tmp_path / "run")
    (run / name).unlink()
    assert cli("report", run, "--formats", "png").status == 0
    page = page_of(run / "figures")
    if name == "metrics.jsonl":
        assert len(page.images) == 1  # token probabilities
        assert "Accuracy and loss: not recorded" in page.text
    else:
        assert f"{name}: not recorded" in page.text


def test_several_runs_overlay_and_carry_the_tables_of_compare(cli, tmp_path):
    runs = write_runs(tmp_path / "runs", {1: [1500, 1600, 1700], 10: [700, 800, None]}, last=2000)
    done = cli("report", runs, "--draws", "2000")
    assert (done.status, done.err) == (0, "")
    page = page_of("report")
    assert {file.suffix for file in Path("report").iterdir()} == {".html", ".png", ".svg", ".pdf"}
    expected = [sheet for sheet, _ in sheets(compare([runs], ["model.c"], n_draws=2000)) if sheet is not None]
    assert len(expected) == 2
    for sheet in expected:
        for row in (sheet.headers, *sheet.rows):
            assert list(row) in page.rows
    assert "3000" not in page.rows[1]
    assert "They differ in model.c." in page.text
    assert "C3" in page.text
    assert "Rank of E (erank_sq): not recorded" in page.text


def test_overlaid_curves_are_the_metrics(tmp_path):
    from grok_lightning.report.overlays import figures, make_cells
    from grok_lightning.report.reading import read_subjects
    from grok_lightning.report.style import house_style

    runs = write_runs(tmp_path / "runs", {1: [100], 10: [50, 150]}, t_mem=50, last=200)
    subjects, _ = read_subjects([runs])
    with house_style():
        overlay = figures(make_cells(subjects, ["model.c"]))[0].figure.axes[1]
    shown = [(list(line.get_xdata()), list(line.get_ydata())) for line in overlay.lines]
    steps = [0, 50, 100, 150, 200]
    assert shown == [
        (steps, [0.1, 0.1, 1, 1, 1]),
        (steps, [0.1, 1, 1, 1, 1]),
        (steps, [0.1, 0.1, 0.1, 1, 1]),
    ]
    assert [text.get_text() for text in overlay.figure.legends[0].get_texts()] == ["c = 1 (n = 1)", "c = 10 (n = 2)"]


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_drawn_and_the_page_says_why(cli, tmp_path):
    write_run(tmp_path / "runs/a", 500, last=1000)
    write_run(tmp_path / "runs/b", 500, last=1000, thresholds={"grok": 0.9})
    assert cli("report", tmp_path / "runs", "--formats", "png").status == 0
    page = page_of("report")
    assert "no comparison: grokking.grok_threshold differs" in page.text
    assert len(page.images) == 2


def test_a_run_that_cannot_be_read_is_left_out_by_name(cli, tmp_path):
    runs = write_runs(tmp_path / "runs", {1: [500, 600]}, last=1000)
    broken = write_run(runs / "broken", 500, last=1000)
    (broken / "metrics.jsonl").write_text('{"step": 0}\nnonsense\n{"step": 1}\n')
    done = cli("report", runs, "--draws", "2000", "--formats", "png")
    assert done.status == 0
    assert "left out: 1 directories, named on the page" in done.out
    assert any(row[0] == str(broken) and "line 2 is not JSON" in row[1] for row in page_of("report").rows)


def refused(done, *words):
    assert done.status == 2, done
    assert done.out == ""
    assert done.err.startswith("grok_lightning: error: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


def test_refusals_are_one_line_and_leave_nothing(cli, tmp_path):
    run = write(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    broken = write(tmp_path / "broken")
    (broken / "config.yaml").write_text("a: [")
    before = sorted(tmp_path.rglob("*"))
    refused(cli("report"), "paths")
    refused(cli("report", "nowhere"), "nowhere", "no such file or directory")
    refused(cli("report", "empty"), "empty", "no run directory")
    refused(cli("report", "broken"), "config.yaml", "YAML")
    refused(cli("report", run, "--out", "file"), "out", "file", "not a directory")
    refused(cli("report", run, "--out", "file/in/it"), "out", "not a directory")
    refused(cli("report", run, "--formats", "gif"), "formats", "gif", "png, svg, pdf")
    refused(cli("report", run, "--draws", "5"), "draws", "5", "2000")
    refused(cli("report", run, "--by", "model.c"), "by", "several runs")
    refused(cli("report", run, broken, "--nonsense"), "nonsense")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unknown_setting_is_refused(cli, tmp_path):
    runs = write_runs(tmp_path / "runs", {1: [500], 10: [400]}, last=1000)
    refused(cli("report", runs, "--by", "model.cc"), "by", "model.cc", "model.c")
    assert not Path("report").exists()


def test_a_directory_that_cannot_be_written_to_is_refused_before_work(cli, tmp_path, monkeypatch):
    run = write(tmp_path / "run")
    (tmp_path / "closed").mkdir()
    allowed = os.access
    monkeypatch.setattr(save.os, "access", lambda path, mode: "closed" not in str(path) and allowed(path, mode))
    refused(cli("report", run, "--out", "closed/deeper"), "out", "closed", "cannot be written to")
    assert list((tmp_path / "closed").iterdir()) == []


def test_a_disk_that_fills_up_leaves_whole_files_only(cli, tmp_path, monkeypatch):
    run = write(tmp_path / "run")
    real, written = Path.write_bytes, []

    def full(path, content):
        if len(written) == 3:
            real(path, content[: len(content) // 2])
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    done = cli("report", run, "--out", "out", "--formats", "png")
    assert done.status == 1
    assert "No space left on device" in done.err
    files = list(Path("out").iterdir())
    assert len(files) == 3  # the page comes last, and no partial file is left
    assert all(file.read_bytes().endswith(b"IEND\xaeB`\x82") for file in files)


def test_config_of_a_run_is_shown_whole(cli, tmp_path):
    config = settings(data__p=7)
    run = write(tmp_path / "run", config=config)
    assert cli("report", run, "--formats", "png").status == 0
    rows = page_of(run / "figures").rows
    assert yaml.safe_load((run / "config.yaml").read_text()) == config
    for name, value in (("model", "EmbeddingMLP"), ("model.betas", "(0.9, 0.999)"), ("trainer.max_steps", "3000")):
        assert [name, value] in rows
