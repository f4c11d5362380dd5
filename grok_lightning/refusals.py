"""What the command line refuses before anything is written: settings that fit no run, or not each other."""

from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from grok_lightning import __version__, saved
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
    content, said = saved.load(path, "ckpt_path", "meta"), f"ckpt_path = {path!r}:"
    if not isinstance(content.get("hyper_parameters"), Mapping):
        raise ConfigError(f"{said} is no checkpoint of this program")
    written, here = str(content.get(VERSION_KEY, "0")), Version(__version__)
    try:
        later = Version(written).release[:2] > here.release[:2]
    except InvalidVersion:
        raise ConfigError(f"{said} is no checkpoint of this program: its version is {written!r}") from None
    if later:
        raise ConfigError(f"{said} was written by grok_lightning {written}; this is {here}")
    return content


def check_checkpoint(path: str, module: GrokModule, goes_on: bool) -> None:
    """Refuse a checkpoint of other settings than the ones asked for, or that does not fit the model.

    Args:
        path: What --ckpt_path says.
        module: The module as the command line describes it.
        goes_on: Whether training is to go on from it: then the optimiser's settings and state count too.
    """
    if path in CHECKPOINT_WORDS:
        return
    content, said = read_checkpoint(path), f"ckpt_path = {path!r}:"
    module.refuse_other_settings(content["hyper_parameters"], also_optimiser=goes_on)
    if module.strict_loading:
        saved.check_fits(content["state_dict"], module.state_dict(), said)
    if goes_on:
        saved.check_resumable(content, said)


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
    saved.check_resumable(content, f"ckpt_path = {str(run.checkpoint)!r}:")
    check_longer(run, content["global_step"], config["trainer"]["max_steps"])
    lines = content["callbacks"].get(LastCheckpoint.__qualname__, {}).get("record_lines", 0)
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
    accumulated, clip = config["accumulate_grad_batches"], config["gradient_clip_val"]
    require(accumulated >= 1, "trainer.accumulate_grad_batches", accumulated, "must be 1 or more (batches)")
    require(clip is None or clip >= 0, "trainer.gradient_clip_val", clip, "must be 0 or more, or null: 0 is off")
    every = config["log_every_n_steps"]
    require(every is None or every >= 0, "trainer.log_every_n_steps", every, "must be 0 or more (steps): 0 is off")
    interval, epochs = config["val_check_interval"], config["check_val_every_n_epoch"]
    valid = not isinstance(interval, int | float) or interval > 0
    require(valid, "trainer.val_check_interval", interval, "must be greater than 0 (batches)")
    counted = epochs is None or epochs >= 1
    require(counted, "trainer.check_val_every_n_epoch", epochs, "must be 1 or more (epochs), or null")
    if epochs is not None and isinstance(interval, int) and interval > 1:
        raise ConfigError(
            f"trainer.check_val_every_n_epoch = {epochs}: evaluations are counted in batches here "
            f"(val_check_interval = {interval}); set val_check_interval to 1.0 to count epochs"
        )
