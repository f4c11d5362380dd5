"""Each optimizer, filter, sampler and intervention, on each model: a run cut off goes on to the same bits."""

import json

import pytest
import torch
from killed import RUNS, assert_same
from short_run import arguments, fit

from grok_lightning.modules.base import GrokModule

OPTIMIZERS = {
    "adam": [],
    "adamw": ["--model.optimizer=adamw"],
    "sgd": ["--model.optimizer=sgd", "--model.momentum=0.9", "--model.lr=0.05"],
    "muon": ["--model.optimizer=muon", "--model.muon_lr=0.02", "--model.depth=3"],
}
FILTERS = {
    "none": [],
    "ema": ["--model.gradient.grokfast=ema"],
    "ma": ["--model.gradient.grokfast=ma", "--model.gradient.window=5", "--model.gradient.orthogonal=true"],
    "orthogonal": ["--model.gradient.orthogonal=true", "--trainer.gradient_clip_val=0.1"],
}
SAMPLERS = {
    name: [f"--data.sampler={name}", *(["--data.sampler_gamma=0.001"] if name == "entropy" else [])]
    for name in ("shuffled", "replacement", "balanced", "entropy")
}
OTHERS = {
    "clamp": ["--model.clamp.norm=8", "--model.clamp.rho=1.2"],
    "freeze": ["--model.freeze_embedding_at=17"],
    "adaptive": ["--adaptive_c.every_n_steps=6", "--model.c=2", "--model.warmup_steps=20"],
    "warmup": ["--model.warmup_steps=20"],
}
CASES = [
    ("EmbeddingMLP", "adam", "ema", "replacement", "adaptive"),
    ("EmbeddingMLP", "adamw", "ma", "balanced", "freeze"),
    ("EmbeddingMLP", "sgd", "none", "entropy", "clamp"),
    ("EmbeddingMLP", "muon", "orthogonal", "shuffled", "adaptive"),
    ("EmbeddingFreeMLP", "adam", "orthogonal", "balanced", "warmup"),
    ("EmbeddingFreeMLP", "adamw", "ema", "shuffled", "clamp"),
    ("EmbeddingFreeMLP", "sgd", "ma", "replacement", "warmup"),
    ("EmbeddingFreeMLP", "muon", "none", "shuffled", "clamp"),
    ("Transformer", "adam", "none", "shuffled", "freeze"),
    ("Transformer", "adamw", "orthogonal", "entropy", "adaptive"),
    ("Transformer", "sgd", "ema", "balanced", "clamp"),
    ("Transformer", "muon", "ma", "replacement", "warmup"),
]
"""Every optimizer on every model; every filter, sampler and intervention with each of several of them."""


@pytest.mark.parametrize(("model", "optimizer", "gradient", "sampler", "other"), CASES)
def test_a_run_that_is_cut_off_goes_on_to_the_same_bits(cli, monkeypatch, model, optimizer, gradient, sampler, other):
    flags = [*OPTIMIZERS[optimizer], *FILTERS[gradient], *SAMPLERS[sampler], *OTHERS[other]]
    flags = [flag for flag in flags if model != "Transformer" or "depth" not in flag]
    flags += ["--checkpoint.every_n_steps=13", "--trainer.log_every_n_steps=3"]
    fit(*flags, model=model, steps=30, run_id="whole")
    right = GrokModule.batch_loss

    def cut_off(module, batch):
        if module.global_step == 23:
            raise KeyboardInterrupt
        return right(module, batch)

    with monkeypatch.context() as fault:
        fault.setattr(GrokModule, "batch_loss", cut_off)
        assert cli(*arguments(*flags, model=model, steps=30, run_id="cut")).status == 130
    assert cli("fit", "--resume", RUNS / "cut").status == 0
    assert_same(RUNS / "whole", RUNS / "cut")


@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP", "Transformer"])
def test_deterministic_algorithms_do_for_every_model_and_are_on_record(model):
    try:
        run = fit(
            "--trainer.deterministic=true", "--hessian.every_n_steps=2", "--ntk.every_n_steps=2", model=model, steps=3
        )
    finally:
        torch.use_deterministic_algorithms(False)
    facts = json.loads((run.path / "provenance.json").read_text())
    assert (facts["deterministic"], facts["threads"], facts["precision"]) == (True, 1, "32-true")
    assert facts["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert facts["torch"] == torch.__version__
