"""What papers report of single interventions, on their settings: seeded, with wide ranges around what we saw."""

import json
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ADDITION = ROOT / "configs" / "addition.yaml"
PUBLISHED = ROOT / "configs" / "published"


@pytest.fixture
def t_grok(cli):
    """T_grok in steps, or ``None``, of a configuration with flags."""

    def run(config, *flags):
        off = ["--config", ROOT / "configs" / "diagnostics" / "off.yaml", "--trainer.logger", "false"]
        done = cli("fit", "--config", config, *off, "--grokking.stop_after_steps", 50, *flags)
        assert done.status == 0, done.err
        newest = max(Path("runs").glob("*/*/summary.json"), key=lambda path: path.stat().st_mtime)
        return json.loads(newest.read_text())["clocks_steps"]["t_grok"]

    return run


def test_c_10_is_sooner_than_c_1_unless_the_network_dies(t_grok):
    """Seen: 5 of 5 at c = 1, between 1 000 and 1 600 steps; 3 of 5 at c = 10, each sooner than its pair."""
    pairs = [[t_grok(ADDITION, "--model.c", c, "--seed_everything", seed) for c in (1, 10)] for seed in range(5)]
    assert all(800 <= slow <= 2000 for slow, _ in pairs)
    alive = [(slow, fast) for slow, fast in pairs if fast is not None]
    assert len(alive) >= 2
    assert all(fast < slow for slow, fast in alive)


def test_grokfast_shortens_the_delay_on_multiplication(t_grok):
    """arXiv:2405.20233: near 790 (MA) and 910 (EMA) iterations, tens of thousands without."""
    plain = ["--model.gradient.grokfast", "none", "--model.weight_decay", 0]
    assert 500 <= t_grok(PUBLISHED / "grokfast_ma.yaml") <= 1500  # seen: 950
    assert 800 <= t_grok(PUBLISHED / "grokfast_ema.yaml") <= 2800  # seen: 1 700
    assert t_grok(PUBLISHED / "grokfast_ma.yaml", *plain) is None


def test_orthogonal_gradients_generalise_without_weight_decay(t_grok):
    """arXiv:2501.04697, Fig. 1: within a few hundred epochs; without the filter never."""
    assert 100 <= t_grok(PUBLISHED / "orthogonal_gradient.yaml") <= 400
    assert t_grok(PUBLISHED / "orthogonal_gradient.yaml", "--model.gradient.orthogonal", "false") is None
