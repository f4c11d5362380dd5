"""The figures of a completed run, as W&B keeps them of an offline run."""

from pathlib import Path

import pytest
import short_run
from PIL import Image
from wandb_file import history

from grok_lightning.__main__ import run
from grok_lightning.callbacks import figures as sending
from grok_lightning.report import make

WANDB = "grok_lightning.loggers.wandb_run.WandbRun"
CURVES = ["--balance.every_n_steps", "5"]


@pytest.fixture
def fit(monkeypatch, capsys):
    """A fit of twenty steps under W&B, long enough for figures; gives back what it printed."""
    monkeypatch.setattr(sending, "FEWEST_STEPS", 20)

    def call(*flags):
        assert run(short_run.arguments(*CURVES, *flags, logger=WANDB)) == 0
        return capsys.readouterr()

    return call


def images():
    return sorted(Path("runs").glob("wandb/offline-run-*/files/media/images/figures/*.png"))


def rows():
    (file,) = Path("runs").glob("wandb/offline-run-*/run-*.wandb")
    return history(file)


def test_the_figures_of_the_record_are_images_of_the_run(fit):
    assert "report: python -m grok_lightning report runs/x/run\n" in fit().out
    logged = [row for row in rows() if any(key.startswith("figures/") for key in row)]
    assert len(logged) == 1
    found = {key.removeprefix("figures/"): value for key, value in logged[0].items() if key.startswith("figures/")}
    assert {"accuracy", "balance", "token_probabilities", "token_gradients"} <= set(found)
    assert "lambda_max" not in found  # the Hessian was not measured
    assert logged[0]["trainer/global_step"] == 20
    for name, value in found.items():
        assert value["_type"] == "image-file", name
        assert any(path.match(value["path"]) or str(path).endswith(value["path"]) for path in images()), value
    assert len(images()) == len(found)
    for path in images():
        with Image.open(path) as picture:
            picture.load()
            assert picture.width == 700
            assert len(picture.convert("L").getcolors()) > 10


@pytest.mark.parametrize("flags", [["--trainer.logger.figures", "false"], ["--trainer.logger.mode", "disabled"]])
def test_no_figures_where_none_are_wanted_or_kept(fit, monkeypatch, flags):
    monkeypatch.setattr(make, "pictures", lambda path: pytest.fail("drawn"))
    fit(*flags)
    assert images() == []


def test_a_short_run_has_none(monkeypatch):
    monkeypatch.setattr(make, "pictures", lambda path: pytest.fail("drawn"))
    assert run(short_run.arguments(logger=WANDB)) == 0


def test_what_cannot_be_drawn_is_a_warning_and_the_run_is_complete(fit, monkeypatch):
    def broken(path):
        raise MemoryError("no room")

    monkeypatch.setattr(make, "pictures", broken)
    with pytest.warns(UserWarning, match="no figures go to W&B: MemoryError: no room"):
        out = fit().out
    assert "completed after 20 steps" in out
    assert "W&B: offline" in out
    assert rows()[-1]


def test_what_wandb_does_not_take_is_a_warning_and_the_run_is_closed(fit, monkeypatch):
    monkeypatch.setattr(make, "pictures", lambda path: {"accuracy": b"no picture"})
    with pytest.warns(UserWarning, match="W&B did not take the figures"):
        out = fit().out
    assert "completed after 20 steps" in out
    assert not any("stopped" in line for line in out.splitlines() if line.startswith("W&B"))
    for file in Path("runs").glob("wandb/offline-run-*/run-*.wandb"):
        assert history(file)  # waits for the record that closes the run
