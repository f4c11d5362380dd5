"""docs/interventions.md names settings that exist, and has a row for each."""

import dataclasses
import inspect
import re

import yaml
from conftest import ROOT

from grok_lightning.callbacks.adaptive_c import AdaptiveC
from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.modules.mlp import EmbeddingFreeMLP, EmbeddingMLP
from grok_lightning.modules.transformer import Transformer

TEXT = (ROOT / "docs" / "interventions.md").read_text()
MODELS = (EmbeddingMLP, EmbeddingFreeMLP, Transformer)
GROUPS = {"model": MODELS, "data": (ModularDataModule,), "adaptive_c": (AdaptiveC,)}


def settings():
    """Dotted name of every setting; groups of settings by their own fields too."""
    found = set()
    for group, classes in GROUPS.items():
        for kind in classes:
            for name, parameter in inspect.signature(kind).parameters.items():
                found.add(f"{group}.{name}")
                if dataclasses.is_dataclass(parameter.default):
                    found |= {f"{group}.{name}.{field.name}" for field in dataclasses.fields(parameter.default)}
    return found


def test_every_setting_that_is_named_exists():
    named = {name.split(":")[0] for name in re.findall(r"`((?:model|data|adaptive_c)\.[a-z0-9_.]+)", TEXT)}
    assert len(named) > 15
    assert not named - settings()


def test_every_setting_that_a_file_shows_is_documented():
    for path in (ROOT / "configs" / "interventions").glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        names = [*content.get("model", {}).get("init_args", {}), *content.get("data", {})]
        plain = {"lr", "weight_decay", "depth", "optimizer", "batch_size"}
        for name in set(names) - plain:
            assert name in TEXT, (path, name)


def test_every_file_has_a_run_in_the_table():
    rows = re.findall(r"^\| `(\w+)` \|.*\| [\d.]+ \|$", TEXT, re.MULTILINE)
    assert rows == sorted(path.stem for path in (ROOT / "configs" / "interventions").glob("*.yaml"))
