"""How W&B is started, without starting it."""

import pytest

from grok_lightning.loggers import wandb_run


@pytest.mark.parametrize(
    ("mode", "variable", "logged_in", "reachable", "expected"),
    [
        ("auto", None, False, True, "offline"),
        ("auto", None, True, True, "online"),
        ("auto", None, True, False, "offline"),
        ("auto", "offline", True, True, "offline"),
        ("auto", "dryrun", True, True, "offline"),
        ("auto", "disabled", True, True, "disabled"),
        ("auto", "online", False, True, "offline"),
        ("online", "disabled", True, True, "online"),
        ("disabled", "online", True, True, "disabled"),
        ("offline", "online", True, True, "offline"),
    ],
)
def test_mode(monkeypatch, mode, variable, logged_in, reachable, expected):
    monkeypatch.delenv("WANDB_MODE")
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    monkeypatch.setattr(wandb_run, "is_logged_in", lambda: logged_in)
    monkeypatch.setattr(wandb_run, "is_reachable", lambda: reachable)
    assert wandb_run.resolve_mode(mode)[0] == expected


def test_a_port_that_refuses_is_not_reachable(monkeypatch):
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert not wandb_run.is_reachable()


def test_resuming_is_allowed():
    assert wandb_run.WandbRun()._wandb_init["resume"] == "allow"
