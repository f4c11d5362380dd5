import json
import shutil

import pytest
from synthetic import settings, write_run, write_runs

from grok_lightning.compare.clocks import Definition
from grok_lightning.compare.comparison import NoRunsError, compare
from grok_lightning.compare.settings import flatten, resolve
from grok_lightning.errors import ConfigError


def reasons(comparison):
    return {run.path.split("/")[-1]: run.reason for run in comparison.left_out}


def by_c(*paths, **options):
    return compare(paths, ["model.c"], n_draws=2000, **options)


def first(comparison, cell=0):
    """T_grok of the runs of a cell, by the first-cross clock."""
    return [run.clocks.t_grok["first"] for run in comparison.cells[cell].runs]


def test_dotted_names_of_a_configuration():
    flat = flatten(
        {
            "model": {"class_path": "a.B", "init_args": {"c": 10.0, "betas": [0.9, 0.999], "hidden": None}},
            "data": {"task": {"class_path": "my.Affine", "init_args": {"slope": 5}}, "p": 97},
            "trainer": {"lr": "1e-3", "callbacks": [{"class_path": "x.Y"}]},
        }
    )
    assert flat == {
        "model": "a.B",
        "model.c": 10.0,
        "model.betas": (0.9, 0.999),
        "data.task": "my.Affine",
        "data.task.slope": 5,
        "data.p": 97,
        "trainer.lr": 0.001,
        "trainer.callbacks": '[{"class_path": "x.Y"}]',
    }


@pytest.mark.parametrize("key", ["model.c", "c", "model.init_args.c"])
def test_a_key_may_be_short(key):
    assert resolve(key, ["model", "model.c", "data.p", "hessian.seed", "ntk.seed"], "by") == "model.c"


def test_a_class_is_the_value_of_its_group():
    assert resolve("model.class_path", ["model", "model.c"], "by") == "model"


@pytest.mark.parametrize(
    ("key", "message"),
    [("seed", "by = 'seed': could be any of hessian.seed, ntk.seed"), ("data.q", "no run has .*close to it: data.p")],
)
def test_a_key_that_fits_none_or_several_is_refused(key, message):
    with pytest.raises(ConfigError, match=message):
        resolve(key, ["model.c", "data.p", "hessian.seed", "ntk.seed"], "by")


def test_an_experiment_is_its_runs_and_dot_directories_are_not():
    root = write_runs("exp", {1: [1000, 1100], 10: [500, None]})
    write_run(root / ".sweep" / "abandoned", 100, c=10, seed=9)
    write_run(root / ".hidden", 100, c=10, seed=9)
    (root / "plots").mkdir()
    found = by_c(root, root / "c1-s0")  # named twice, counted once
    assert [len(cell.runs) for cell in found.cells] == [2, 2]
    assert reasons(found) == {"plots": "is no run directory"}
    assert first(found, 1) == [500, None]


def test_what_did_not_finish_is_left_out_and_named():
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "going", None, status=None, last=600, c=10, seed=1)
    write_run(root / "crashed", 450, status="failed", last=600, c=10, seed=2)
    write_run(root / "stopped", None, status="interrupted", last=600, c=10, seed=3)
    found = by_c(root)
    assert [len(cell.runs) for cell in found.cells] == [1, 1]
    assert reasons(found) == {
        "crashed": "failed: OSError: disk full (--partial counts it, as censored)",
        "going": "no summary.json: still running, or killed (--partial counts it, as censored)",
        "stopped": "interrupted: OSError: disk full (--partial counts it, as censored)",
    }


def test_partial_runs_enter_as_observed_or_censored():
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "going", None, status=None, last=600, c=10, seed=1)
    write_run(root / "crashed", 450, status="failed", last=600, c=10, seed=2)
    metrics = root / "going" / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 650, "val/a')  # killed while writing
    found = by_c(root, partial=True)
    times = {run.path.split("/")[-1]: run.clocks for run in found.cells[1].runs}
    assert (times["going"].t_grok["first"], times["going"].last_step) == (None, 600)
    assert (times["crashed"].t_grok["first"], times["crashed"].resolution) == (450, 50)
    assert found.cells[1].clocks[0].censored_steps == (600,)
    assert any(note.startswith("2 partial runs are counted") for note in found.notes)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda run: (run / "config.yaml").unlink(), "no config.yaml: its settings are unknown"),
        (lambda run: (run / "config.yaml").write_text("a: [1"), "config.yaml cannot be read (ParserError)"),
        (lambda run: (run / "config.yaml").write_text("lr: 3"), "it has neither model nor data"),
        (lambda run: (run / "summary.json").write_text("{"), "summary.json cannot be read (JSONDecodeError)"),
        (lambda run: (run / "summary.json").write_text('{"status": "fine"}'), "status = 'fine' is none of completed"),
        (lambda run: (run / "metrics.jsonl").write_text("x\n{}\n"), "metrics.jsonl: line 1 is not JSON"),
        (lambda run: (run / "config.yaml").write_bytes(b"\xff\xfe\x00"), "config.yaml cannot be read"),
    ],
)
def test_a_spoilt_run_is_left_out_with_the_reason(spoil, reason):
    root = write_runs("exp", {1: [1000, 1100], 10: [500, 600]})
    spoil(root / "c10-s1")
    found = by_c(root)
    assert [len(cell.runs) for cell in found.cells] == [2, 1]
    assert reason in reasons(found)["c10-s1"]


def test_no_run_at_all_is_an_error_with_the_reasons():
    write_run("going", None, status=None, last=600)
    with pytest.raises(NoRunsError, match="none of 1") as caught:
        by_c("going")
    assert "still running" in caught.value.left_out[0].reason
    write_runs("root/exp", {1: [1000]})
    with pytest.raises(NoRunsError) as caught:
        by_c("root")
    assert caught.value.left_out[0].reason.endswith("the directories in it do, name those")
    with pytest.raises(ConfigError, match="paths = 'nowhere': there is no such file"):
        by_c("nowhere")


def edit_summary(run, **changes):
    file = run / "summary.json"
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value != "drop"}))


def test_clocks_that_an_older_summary_lacks_are_computed_from_the_metrics():
    root = write_runs("exp", {1: [1000, 1100], 10: [500, None]})
    edit_summary(root / "c1-s0", clocks_steps={"t_mem": 200, "t_grok": 1000})
    edit_summary(root / "c10-s0", clocks_steps="drop")
    found = by_c(root)
    assert (first(found, 0), first(found, 1)) == ([1000, 1100], [500, None])
    assert found.cells[0].runs[0].clocks.t_grok["sustained"] == 1000
    assert (
        "clocks of 1 runs were computed from their metrics: the summary has no t_mem_sustained, t_grok_sustained"
        in (found.notes)
    )


def test_an_older_summary_without_metrics_is_left_out():
    root = write_runs("exp", {1: [1000, 1100], 10: [500, None]})
    edit_summary(root / "c1-s0", clocks_steps="drop")
    (root / "c1-s0" / "metrics.jsonl").unlink()
    assert "no metrics to compute them from" in reasons(by_c(root))["c1-s0"]


def test_a_summary_alone_is_enough():
    root = write_runs("exp", {1: [1000], 10: [500]})
    (root / "c10-s0" / "metrics.jsonl").unlink()
    run = by_c(root).cells[1].runs[0]
    assert (run.clocks.t_grok["first"], run.clocks.last_step, run.clocks.resolution) == (500, 3000, 50)


def test_first_and_sustained_are_told_apart():
    run = write_run("run", 500, c=1)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["val/acc"] = {500: 0.96, 550: 0.5}.get(line["step"], line["val/acc"])
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "summary.json").unlink()
    assert by_c(run, partial=True).cells[0].runs[0].clocks.t_grok == {"first": 500, "sustained": 600}


def test_a_run_that_begins_above_the_threshold_groks_at_its_first_evaluation():
    root = write_runs("exp", {1: [0, 50], 10: [0, 0]})
    found = by_c(root)
    assert [cell.clocks[0].t_grok for cell in found.cells] == [0, 0]
    paired = found.contrasts[0].paired
    assert (paired.tied, paired.sooner, paired.sign_p) == (1, 1, 1.0)


def test_metrics_that_begin_late_cannot_give_a_clock():
    run = write_run("run", 500, c=1)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[12:]))
    assert first(by_c(run)) == [500]  # the summary knows
    with pytest.raises(NoRunsError) as caught:
        by_c(run, definition=Definition(grok=0.9))
    assert "begins at step 600 only" in caught.value.left_out[0].reason


def test_summary_and_metrics_have_to_agree():
    run = write_run("run", 500, c=1)
    edit_summary(run, clocks_steps=dict.fromkeys(("t_mem", "t_mem_sustained", "t_grok", "t_grok_sustained"), 9000))
    with pytest.raises(NoRunsError) as caught:
        by_c(run)
    assert caught.value.left_out[0].reason == "t_mem = 9000 lies after the last evaluated step 3000"


def test_other_thresholds_are_refused_or_computed_again():
    root = write_runs("exp", {1: [1000], 10: [500]}, final=0.93)
    write_run(root / "other", 400, c=10, seed=1, thresholds={"grok": 0.9}, final=0.93)
    message = r"grokking.grok_threshold differs between the runs \(0.9, 0.95\).*--threshold VALUE computes them again"
    with pytest.raises(ConfigError, match=message):
        by_c(root)
    high = by_c(root, definition=Definition(grok=0.95))
    assert (first(high, 0), first(high, 1)) == ([1000], [500, None])  # the record of the first two is taken as it is
    low = by_c(root, definition=Definition(grok=0.92))
    assert (first(low, 0), first(low, 1)) == ([1000], [500, 400])
    assert "clocks of 3 runs were computed from their metrics: as asked" in low.notes


def test_thresholds_may_be_what_is_compared():
    root = write_runs("exp", {10: [500]})
    low = settings(c=10, seed=0, grokking__grok_threshold=0.9)
    write_run(root / "low", 450, config=low, thresholds={"grok": 0.9})
    found = compare([root], ["grok_threshold"], n_draws=2000)
    assert [(cell.label, cell.clocks[0].t_grok) for cell in found.cells] == [
        ("grokking.grok_threshold = 0.9", 450),
        ("grokking.grok_threshold = 0.95", 500),
    ]


def test_parts_are_not_mixed():
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "other", 400, c=10, seed=1, thresholds={"part": "test"})
    with pytest.raises(ConfigError, match=r"grokking.part differs.*--part VALUE"):
        by_c(root)
    assert first(by_c(root, definition=Definition(part="test")), 1) == [500, 400]


def test_another_setting_that_differs_is_refused_with_the_ways_out():
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "other", 400, c=10, seed=1, model__lr=0.001, data__batch_size=64)
    with pytest.raises(ConfigError) as caught:
        by_c(root)
    assert str(caught.value) == (
        "settings differ between the runs: data.batch_size (64, 512); model.lr (0.001, 0.01). Add them to --by, or mix "
        "them inside each cell with --pool data.batch_size model.lr"
    )
    pooled = by_c(root, pool=["lr", "batch_size"])
    assert [len(cell.runs) for cell in pooled.cells] == [1, 2]
    assert "model.lr (0.001, 0.01) is pooled: cells mix its values" in pooled.notes
    cells = compare([root], ["model.c", "lr", "batch_size"], n_draws=2000).cells
    assert [cell.label for cell in cells][1] == "model.c = 10, model.lr = 0.001, data.batch_size = 64"


@pytest.mark.parametrize(
    "changed",
    [{"hessian__every_n_steps": 7}, {"record__root": "x"}, {"trainer__logger": True}, {"ntk__seed": 4}],
)
def test_what_cannot_change_a_clock_may_differ(changed):
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "other", 400, c=10, seed=1, **changed)
    assert [len(cell.runs) for cell in by_c(root).cells] == [1, 2]


def test_length_may_differ_and_is_said():
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "short", None, c=10, seed=1, last=600, trainer__max_steps=600)
    found = by_c(root)
    assert found.cells[1].clocks[0].censored_steps == (600,)
    assert "trainer.max_steps (600, 3000) differs between the runs: this moves where they are censored" in found.notes


def test_the_same_run_twice_counts_once():
    root = write_runs("exp", {1: [1000], 10: [500]})
    write_run(root / "again", 450, c=10, seed=0, started="2026-12-02T00:00:00Z")
    write_run(root / "later-but-cut", 400, c=10, seed=0, status="failed", last=600, started="2026-12-03T00:00:00Z")
    found = by_c(root, partial=True)
    assert first(found, 1) == [450]
    assert set(reasons(found)) == {"c10-s0", "later-but-cut"}
    assert "same settings and seeds" in reasons(found)["c10-s0"]


def test_an_older_record_that_lacks_a_setting_is_left_out_unless_pooled():
    root = write_runs("exp", {1: [1000], 10: [500]}, model__warmup_steps=0)
    write_run(root / "old", 450, c=10, seed=1, version="0.0.9")
    write_run(root / "foreign", 450, c=10, seed=2, version=None)
    found = by_c(root)
    assert reasons(found) == {
        "old": "recorded by version 0.0.9, which does not say model.warmup_steps "
        "(--pool model.warmup_steps takes it in)",
        "foreign": "recorded by an unknown version, which does not say model.warmup_steps "
        "(--pool model.warmup_steps takes it in)",
    }
    assert len(by_c(root, pool=["warmup_steps"]).cells[1].runs) == 3


def test_classes_with_other_arguments_are_comparable():
    root = write_runs("exp", {1: [1000, 900]})
    for seed in (0, 1):
        config = settings(c=1, seed=seed, model__input_scale=1.0)
        config["model"]["class_path"] = "grok_lightning.modules.mlp.EmbeddingFreeMLP"
        write_run(root / f"free-{seed}", None, config=config)
    found = compare([root], ["model"], n_draws=2000)
    assert [cell.label for cell in found.cells] == ["model = EmbeddingFreeMLP", "model = EmbeddingMLP"]
    assert "model.input_scale (1, null): not every model has it" in found.notes
    shutil.rmtree(root / "free-1")
    write_run(root / "c1-s2", 800, c=1, seed=2, model__input_scale=1.0)
    with pytest.raises(ConfigError, match=r"model\.input_scale"):  # now one class has it and has it not
        compare([root], ["model"], n_draws=2000)


def test_runs_without_seeds_are_replicates_in_no_pair():
    root = write_runs("exp", {1: [1000], 10: [500]})
    for name, t, seed in (("x", 600, None), ("y", 700, None), ("z", 700, True)):
        write_run(root / name, t, c=10, seed=seed)
    found = by_c(root)
    assert (len(found.cells[1].runs), found.contrasts[0].paired.n, found.contrasts[0].unpaired) == (4, 1, 3)
    assert "3 runs record no seeds and are in no pair" in found.notes
