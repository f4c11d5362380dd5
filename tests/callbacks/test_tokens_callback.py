"""Token rows by frequency against brute force: batches counted by hand, updates as differences of saved weights."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from short_run import Run, fit
from torch.nn.functional import cross_entropy

from grok_lightning.__main__ import run
from grok_lightning.data.text import TextDataModule
from grok_lightning.modules.language import LanguageModel

SIZES = ["--data.vocab_size=300", "--data.context_length=16", "--data.train_rows_evaluated=8"]
SMALL = [*SIZES, "--model.d_model=8", "--model.n_heads=2", "--model.n_layers=1"]
FLAGS = [
    "fit", "--config", f"{ROOT}/configs/text_small.yaml", "--config", f"{ROOT}/configs/diagnostics/off.yaml", *SMALL,
    "--trainer.logger=false", "--trainer.enable_progress_bar=false", "--trainer.val_check_interval=1000",
    "--record.experiment=x", "--model.optimizer=sgd", "--model.lr=0.5",
]  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a run of 6 steps logs, its weights after 3, …, 6 steps, and its batches."""
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path_factory.mktemp("runs"))
        every = ["--tokens.every_n_steps=3", "--tokens.per_token=true", "--trainer.max_steps=6"]
        assert run([*FLAGS, *every, "--record.run_id=all"]) == 0
        record, weights = Run(_path("all")), []
        for steps in (3, 4, 5):
            assert run([*FLAGS, f"--trainer.max_steps={steps}", f"--record.run_id=s{steps}"]) == 0
            weights.append(Run(_path(f"s{steps}")).weights)
        weights.append(record.weights)
    data = TextDataModule(vocab_size=300, context_length=16, batch_size=16)
    rows = [data.split.train[data.batch_order().rows(step)] for step in range(6)]
    return record, weights, [(data.inputs[row], data.labels[row]) for row in rows], data


def _path(name):
    return Path("runs/x").absolute() / name


def groups(found):
    counts = found[3].token_counts().tolist()
    order = [token for _, token in sorted((c, t) for t, c in enumerate(counts) if c)]
    ends = [len(order) * k // 10 for k in range(11)]
    return [order[a:b] for a, b in pairwise(ends)]


def test_shares_and_frequencies_are_those_of_the_text(found):
    record, _, batches, data = found
    ids = data.file.ids[: data.file.counts["train"]].tolist()
    p = np.bincount(ids, minlength=data.file.vocab_size) / len(ids)
    measured = record.group("tokens")
    assert measured[0]["token_p"] == pytest.approx(p.tolist())
    assert measured[6]["decile_share"] == pytest.approx([p[g].sum() for g in groups(found)])
    present = [set(tokens.flatten().tolist()) for tokens, _ in batches[3:]]
    f = np.array([[token in batch for token in range(len(p))] for batch in present]).mean(0)
    assert measured[6]["token_f"] == pytest.approx(f.tolist())
    assert measured[6]["decile_f"] == pytest.approx([f[g].mean() for g in groups(found)])
    assert measured[6]["f_E"] == pytest.approx(f[p > 0].mean())


def test_gradients_and_updates_are_the_real_ones(found):
    record, weights, batches, data = found
    names = [f"layers.0.{name}.weight" for name in ("W_Q", "W_K", "W_V")]
    rows, first = [], []
    for before, (tokens, labels) in zip(weights[:3], batches[3:], strict=True):
        module = LanguageModel(data.file.vocab_size, 16, d_model=8, n_heads=2, n_layers=1)
        module.net.load_state_dict(before)
        cross_entropy(module.net(tokens), labels).backward()
        gradient = {name: p.grad for name, p in module.net.named_parameters()}
        rows.append(gradient["E"].double().square().sum(1).numpy())
        first.append(sum(float(gradient[name].double().square().sum()) for name in names))
    measured = record.group("tokens")[6]
    mean = np.mean(rows, axis=0)
    assert measured["token_grad_norm"] == pytest.approx(np.sqrt(mean).tolist(), rel=1e-4, abs=1e-9)
    norms = [np.sqrt(mean[g].mean()) for g in groups(found)]
    assert measured["decile_grad_norm"] == pytest.approx(norms, rel=1e-4)
    W = np.sqrt(np.mean(first) / 192)
    ratios = [W / (n / np.sqrt(8)) if n else np.nan for n in norms]  # the rarest may be in none of three batches
    assert measured["decile_gradient_c"] == pytest.approx(ratios, rel=1e-4, nan_ok=True)
    after, before = weights[3], weights[2]
    delta = (after["E"] - before["E"]).double().square().sum(1).numpy()
    moved = sum(float((after[name] - before[name]).double().square().sum()) for name in names)
    expected = [np.sqrt(delta[g].mean() / 8) / np.sqrt(moved / 192) for g in groups(found)]
    assert measured["decile_update_ratio"] == pytest.approx(expected, rel=1e-3)
    sigma = [
        np.linalg.svd(m.double().numpy(), compute_uv=False)[0]
        for m in (after["E"], torch.cat([after[n] for n in names]))
    ]
    f = measured["decile_f"]
    predicted = [sigma[0] / sigma[1] / each if each else np.nan for each in f]
    assert measured["decile_predicted_c"] == pytest.approx(predicted, rel=1e-5, nan_ok=True)


def test_modular_arithmetic_has_tokens_too_and_fixed_rows_have_none():
    run_ = fit("--tokens.every_n_steps", 10)
    shares = run_.group("tokens")[20]["decile_share"]
    assert sum(shares) == pytest.approx(1)
    assert shares[-1] == 0.5  # OP and EQ are half of all tokens
    for flags in (["--model.embedding.inputs", "one_hot"], ["--model.embedding.rank", 2]):
        other = fit("--tokens.every_n_steps", 10, *flags, "--model.c", 1, run_id=str(flags[1]))
        assert not other.group("tokens")
    assert not fit("--tokens.every_n_steps", 10, model="EmbeddingFreeMLP", run_id="free").group("tokens")
