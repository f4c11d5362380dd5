"""What the command line refuses before anything is written: settings that fit no run, or not each other."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version

from grok_lightning import __version__
from grok_lightning.callbacks.checkpoint import LastCheckpoint
from grok_lightning.errors import ConfigError, require
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.screen import print_safely
from grok_lightning.modules.base import VERSION_KEY, GrokModule
from grok_lightning.resume import Resumed, check_longer, check_same

CHECKPOINT_WORDS = ("best", "last", "hpc")
"""Values of --ckpt_path that Lightning resolves itself."""


def read_checkpoint(path: str) -> dict[str, Any]:
    """A checkpoint without its numbers; a file that is none, or is damaged, is refused and nothing in it executed.

    Args:
        path: What --ckpt_path says.
    """
    if not Path(path).is_file():
        raise ConfigError(f"ckpt_path = {path!r}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch.load does not look at the checksums
        if damaged is not None:
            raise ConfigError(f"ckpt_path = {path!r}: is damaged (checksum of {damaged})")
        content = torch.load(path, map_location="meta", weights_only=True)
    except ConfigError:
        raise
    except Exception as error:  # whatever is wrong with the file, it is no checkpoint
        raise ConfigError(f"ckpt_path = {path!r}: cannot be read as a checkpoint ({type(error).__name__})") from error
    if not isinstance(content, dict) or not {"state_dict", "hyper_parameters"} <= content.keys():
        raise ConfigError(f"ckpt_path = {path!r}: is no checkpoint of this program")
    written, here = str(content.get(VERSION_KEY, "0")), Version(__version__)
    if Version(written).release[:2] > here.release[:2]:
        raise ConfigError(f"ckpt_path = {path!r}: was written by grok_lightning {written}; this is {here}")
    return content


def check_checkpoint(path: str, module: GrokModule, also_optimiser: bool) -> None:
    """Refuse a checkpoint of other settings than the ones asked for.

    Args:
        path: What --ckpt_path says.
        module: The module as the command line describes it.
        also_optimiser: Whether the optimiser's settings count too, as they do when training goes on.
    """
    if path not in CHECKPOINT_WORDS:
        module.refuse_other_settings(read_checkpoint(path)["hyper_parameters"], also_optimiser)


def take_up(run: Resumed, config: Mapping[str, Any], record: RunRecord) -> None:
    """Prepare the record to go on with a run, or refuse to.

    Args:
        run: The run.
        config: The configuration that is asked for, resolved.
        record: The record, at the run's directory.
    """
    check_same(run, config)
    if run.checkpoint is None:
        print_safely(f"{run.path} has no checkpoint yet: it starts over")
        record.resume_from(-1, 0)
        return
    content = read_checkpoint(str(run.checkpoint))
    check_longer(run, content["global_step"], config["trainer"]["max_steps"])
    lines = content.get("callbacks", {}).get(LastCheckpoint.__qualname__, {}).get("record_lines", 0)
    record.resume_from(content["global_step"], lines)


def check_seed(seed: int | bool | None) -> None:
    """Refuse a seed that no generator takes."""
    fits = seed is None or isinstance(seed, bool) or 0 <= seed < 2**32
    require(fits, "seed_everything", seed, "must be from 0 to 2^32 - 1")


def check_trainer(config: Mapping[str, Any]) -> None:
    """Refuse flags of Lightning's Trainer under which a logged number would not be what its name says.

    Args:
        config: The flags.
    """
    if config["fast_dev_run"]:
        return
    limit = config["limit_val_batches"]
    whole = limit is None or limit == 0 or (isinstance(limit, float) and limit == 1)  # the whole number 1 is one batch
    allowed = "evaluations are of whole parts of the table: leave it out, or set it to 0 for none"
    require(whole, "trainer.limit_val_batches", limit, allowed)
    for field, why in (
        ("overfit_batches", "evaluations would be of a few rows; use data.frac_train for a smaller training set"),
        ("reload_dataloaders_every_n_epochs", "the order of batches would start anew"),
    ):
        require(config[field] in (0, 0.0, None), f"trainer.{field}", config[field], f"must be 0: {why}")
    interval, epochs = config["val_check_interval"], config["check_val_every_n_epoch"]
    valid = not isinstance(interval, int | float) or interval > 0
    require(valid, "trainer.val_check_interval", interval, "must be greater than 0 (batches)")
    every = epochs is None or epochs >= 1
    require(every, "trainer.check_val_every_n_epoch", epochs, "must be 1 or more (epochs), or null")
    if epochs is not None and isinstance(interval, int) and interval > 1:
        raise ConfigError(
            f"trainer.check_val_every_n_epoch = {epochs}: evaluations are counted in batches here "
            f"(val_check_interval = {interval}); set val_check_interval to 1.0 to count epochs"
        )
