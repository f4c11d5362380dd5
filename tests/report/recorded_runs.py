"""A run directory with every quantity that a figure shows, with numbers of our choice."""

import json
from pathlib import Path

import yaml
from compare.synthetic import settings

STEPS = [0, 10, 100, 1000]
P = 7


def lines():
    """Metric lines; values are simple functions of the place of the step, so that a test can say them again."""
    for i, step in enumerate(STEPS):
        yield {
            "step": step,
            "train_full/acc": [0.1, 0.5, 1.0, 1.0][i],
            "val/acc": [0.1, 0.1, 0.2, 0.99][i],
            "test/acc": [0.1, 0.1, 0.3, 0.98][i],
            "train_full/loss": 2.0 / (i + 1),
            "val/loss": 2.0,
            "test/loss": 2.1,
        }
        yield {
            "step": step,
            "hessian/E/lambda_max": 0.1 * (i + 1),
            "hessian/E/residual": 1e-4,
            "hessian/E/converged": 1.0,
            "hessian/W/lambda_max": 3.0 - 0.5 * i,
            "hessian/W/residual": 0.5,
            "hessian/W/converged": float(i != 2),
        }
        for matrix in ("E", "W", "EW_a"):
            yield {
                "step": step,
                f"spectrum/{matrix}/sigma": [4.0, 2.0, 1.0 / (i + 1)],
                f"spectrum/{matrix}/erank": 3.0 - 0.1 * i,
                f"spectrum/{matrix}/erank_sq": 2.5 - 0.1 * i,
                f"spectrum/{matrix}/stable_rank": 2.0,
                f"spectrum/{matrix}/participation_ratio": 2.0,
                f"spectrum/{matrix}/numerical_rank": 3.0,
            }
        yield {"step": step, "balance/sigma_E": 5.0, "balance/sigma_W": 1.0 + i}
        if step:
            yield {
                "step": step,
                **{"balance/f_E": 0.9, "balance/f_OP": 1.0, "balance/f_EQ": 1.0},
                **{
                    "balance/predicted_c": 5.0 / (1.0 + i) / 0.9,
                    "balance/grad_ratio": 0.5,
                    "balance/update_ratio": 2.0,
                },
                "balance/token_grad_norm": [0.01 * (j + 1) * i for j in range(P + 1)] + [0.0],
                "balance/token_update_norm": [0.1 * (j + 1) for j in range(P + 2)],
            }
        yield {
            "step": step,
            "fourier/natural/spectrum": [1.0, 2.0, 3.0 * i, 0.5],
            "fourier/natural/gini": 0.1 * i,
            "fourier/natural/ipr": 0.3,
            "ntk/E/relative_drift": 0.2 * i,
            "ntk/E/one_minus_cka": 0.1 * i,
            "health/softmax_collapse": 0.0,
            "health/logit_norm": 1.0 + i,
            "health/E/param_norm": 2.0,
            "two_phase/E/grad_norm": 1.0,
            "two_phase/W/grad_norm": 1.0,
            "two_phase/rest/grad_norm": 1.0,
            "two_phase/all/grad_norm": [1.0, 0.5, 0.009, 0.001][i],
            "two_phase/weight_norm": 4.0,
            "two_phase/decay_over_gradient": 0.001 * 4.0 / [1.0, 0.5, 0.009, 0.001][i],
        }


def probabilities(n=P):
    return [(i + 1) / (n * (n + 1) / 2) for i in range(n)]


def write(path, *, config=None, status="completed", keep=lambda key: True, provenance=None, reason=None):
    """The run directory; ``status=None`` leaves out the summary."""
    path = Path(path)
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config or settings(data__p=P)))
    kept = [{k: v for k, v in line.items() if k == "step" or keep(k)} for line in lines()]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept if len(line) > 1))
    slots = {"a": probabilities(), "b": probabilities(), "token": probabilities()}
    facts = provenance or {"torch": "2.13.0", "data": {"token_probabilities": {"train": slots, "test": slots}}}
    (path / "provenance.json").write_text(json.dumps(facts))
    if status is not None:
        summary = {
            "status": status,
            "steps": STEPS[-1],
            "clocks_steps": {"t_mem": 100, "t_mem_sustained": 100, "t_grok": 1000, "t_grok_sustained": 1000},
            "thresholds": {"mem": 0.99, "grok": 0.95, "part": "val", "sustain_evaluations": None},
            "final_acc": {"train_full": 1.0, "val": 0.99, "test": 0.98},
        }
        (path / "summary.json").write_text(json.dumps(summary | ({"reason": reason} if reason else {})))
    return path
