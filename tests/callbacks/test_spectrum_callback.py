"""Logged singular values and ranks against numpy on the weights that a run leaves."""

import numpy as np
import pytest
from short_run import fit


def ranks(sigma, shape):
    q, q2 = sigma / sigma.sum(), sigma**2 / (sigma**2).sum()
    entropy = lambda w: -(w[w > 0] * np.log(w[w > 0])).sum()  # noqa: E731
    return {
        "sigma_max": sigma[0],
        "sigma_min": sigma[-1],
        "frobenius_norm": np.sqrt((sigma**2).sum()),
        "erank": np.exp(entropy(q)),
        "erank_sq": np.exp(entropy(q2)),
        "stable_rank": (sigma**2).sum() / sigma[0] ** 2,
        "participation_ratio": (sigma**2).sum() ** 2 / (sigma**4).sum(),
        "numerical_rank": (sigma > sigma[0] * max(shape) * np.finfo(np.float32).eps).sum(),
    }


MATRICES = {
    "EmbeddingMLP": {"E": "E", "W": "first.weight", "W2": "stack.layers.0.weight"},
    "EmbeddingFreeMLP": {"W": "first.weight", "W2": "stack.layers.0.weight"},
    "Transformer": {
        "E": "E", "W_U": "unembedding.weight", "W_in_0": "layers.0.W_in.weight", "W_out_0": "layers.0.W_out.weight",
        **{f"{name}_0": f"layers.0.attention.{name}.weight" for name in ("W_Q", "W_K", "W_V", "W_O")},
    },
}  # fmt: skip


@pytest.mark.parametrize("model", MATRICES)
def test_every_matrix(model):
    run = fit("--spectrum.every_n_steps", 10, model=model)
    found, weights = run.group("spectrum"), {name: w.double().numpy() for name, w in run.weights.items()}
    assert sorted(found) == [0, 10, 20]
    matrices = {name: weights[parameter] for name, parameter in MATRICES[model].items()}
    if model == "EmbeddingMLP":
        W = matrices["W"].reshape(-1, 4, 4)  # (hidden, slot, d)
        matrices |= {"EW_a": matrices["E"] @ W[:, 0].T, "EW_b": matrices["E"] @ W[:, 2].T}
    assert {key.split("/")[0] for key in found[20]} == set(matrices)
    for name, matrix in matrices.items():
        sigma = np.linalg.svd(matrix, compute_uv=False)
        tiny = 1e-6 * sigma[0]  # EW_a and EW_b are multiplied in float32
        assert found[20][f"{name}/sigma"] == pytest.approx(sigma.tolist(), rel=1e-6, abs=tiny)
        for quantity, value in ranks(sigma, matrix.shape).items():
            if name.startswith("EW") and quantity in ("sigma_min", "numerical_rank"):
                continue  # rank 4 of 11: what is 0 in exact arithmetic is rounding here
            assert found[20][f"{name}/{quantity}"] == pytest.approx(value, rel=1e-5), (name, quantity)


def test_log_spaced_steps_and_a_choice_of_matrices():
    found = fit("--spectrum.log_points_per_decade", 2, "--spectrum.matrices=[E]").group("spectrum")
    assert sorted(found) == [0, 3, 10, 20]
    assert {key.split("/")[0] for key in found[20]} == {"E"}


def test_largest_singular_value():
    import torch

    from grok_lightning.numerics.spectra import largest_singular_value

    generator = torch.Generator().manual_seed(1)
    for shape in ((7, 3), (3, 7), (1, 1)):
        matrix = torch.randn(shape, generator=generator)
        top = np.linalg.svd(matrix.double().numpy(), compute_uv=False)[0]
        for scale in (1.0, 1e-30, 1e30):
            assert largest_singular_value(matrix * scale) == pytest.approx(top * scale, rel=1e-6)
    assert largest_singular_value(torch.zeros(3, 4)) == 0
    assert np.isnan(largest_singular_value(torch.full((2, 2), np.nan)))
