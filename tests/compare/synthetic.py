"""Run directories as ``fit`` leaves them, with clocks of our choice."""

import json
from pathlib import Path

import yaml

STEP = 50


def settings(c=10.0, seed=0, **changed):
    """Nested configuration in the shape of config.yaml; changed: dotted names with ``__`` for the dot."""
    config = {
        "seed_everything": seed,
        "trainer": {"max_steps": 3000, "val_check_interval": STEP, "logger": False},
        "model": {
            "class_path": "grok_lightning.modules.mlp.EmbeddingMLP",
            "init_args": {"lr": 0.01, "c": float(c), "optimizer": "adam", "betas": [0.9, 0.999]},
        },
        "data": {"task": "addition", "p": 97, "split_seed": 0, "order_seed": 0, "batch_size": 512},
        "grokking": {"mem_threshold": 0.99, "grok_threshold": 0.95},
        "hessian": {"every_n_steps": 0, "seed": 0},
        "ntk": {"seed": 0},
        "record": {"root": "runs"},
    }
    for name, value in changed.items():
        *groups, last = name.split("__")
        place = config
        for group in groups:
            place = place[group]["init_args"] if group == "model" else place[group]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return config


def evaluations(t_mem, t_grok, last, final=1.0):
    """Metric lines: 0.1 below the clock, 1.0 (train) or ``final`` (val, test) from it on."""
    for step in range(0, last + 1, STEP):
        mem, grok = (t is not None and step >= t for t in (t_mem, t_grok))
        unseen = final if grok else 0.1
        yield {"step": step, "train_full/acc": 1.0 if mem else 0.1, "val/acc": unseen, "test/acc": unseen}


def write_run(
    path,
    t_grok,
    *,
    t_mem=200,
    last=3000,
    config=None,
    status="completed",
    final=1.0,
    thresholds=None,
    version="0.1.0",
    started="2026-12-01T00:00:00Z",
    **changed,
):
    """One run directory. ``status=None`` leaves out the summary, as a run that still goes on does."""
    path = Path(path)
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config or settings(**changed)))
    lines = list(evaluations(t_mem, t_grok, last, final))
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = {
        "status": status,
        "steps": last,
        "clocks_steps": {
            "t_mem": t_mem,
            "t_mem_sustained": t_mem,
            "t_grok": t_grok,
            "t_grok_sustained": t_grok,
            "delay": None if t_grok is None else t_grok - t_mem,
        },
        "thresholds": {"mem": 0.99, "grok": 0.95, "part": "val", "sustain_evaluations": None} | (thresholds or {}),
        "final_acc": {"train_full": 1.0, "val": lines[-1]["val/acc"], "test": lines[-1]["test/acc"]},
    }
    if status in ("failed", "interrupted"):
        summary["reason"] = "OSError: disk full"
    if status is not None:
        (path / "summary.json").write_text(json.dumps(summary))
    provenance = {"torch": "2.13.0", "device": "cpu", "precision": "32-true", "started": started}
    (path / "provenance.json").write_text(json.dumps(provenance | ({"grok_lightning": version} if version else {})))
    return path


def write_runs(root, times, **common):
    """Runs ``root/c<c>-s<seed>`` from c → list of T_grok by seed (``None``: never by the end)."""
    for c, by_seed in times.items():
        for seed, t_grok in enumerate(by_seed):
            write_run(Path(root) / f"c{c}-s{seed}", t_grok, c=c, seed=seed, **common)
    return Path(root)
