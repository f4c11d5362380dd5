"""Parameters dealt out over processes (FSDP2), under Lightning's ModelParallelStrategy."""

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn

from grok_lightning.errors import ConfigError
from grok_lightning.nets.base import Net
from grok_lightning.optim.recipe import Recipe


def shard(net: Net, trainer: Trainer, recipe: Recipe, compile: bool) -> None:
    """Shard every layer of a network, then the rest of it, if the strategy is one that shards.

    Optimiser groups, losses and weights stay what they are with one process up to rounding.

    Args:
        net: The network.
        trainer: Its strategy decides.
        recipe: What the optimiser does.
        compile: Whether training steps are to be compiled.

    Raises:
        ConfigError: If something asked for needs whole parameters, or the strategy splits more than the data.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, ModelParallelStrategy):
        return
    mesh = strategy.device_mesh
    if mesh["tensor_parallel"].size() > 1:
        raise ConfigError(
            f"trainer.strategy.tensor_parallel_size = {mesh['tensor_parallel'].size()}: every process has rows of its "
            f"own here; set data_parallel_size to the number of processes, {trainer.world_size}, and this to 1"
        )
    whole = {
        "model.optimizer": recipe.optimizer == "muon",
        "model.gradient": recipe.filters_gradients,
        "model.clamp.norm": recipe.clamp.norm is not None,
        "model.compile": compile,
    }
    for field, asked in whole.items():
        if asked:
            raise ConfigError(
                f"{field}: is not to be had under ModelParallelStrategy, which shards parameters; use ddp"
            )
    if trainer.state.fn == "fit" and strategy._save_distributed_checkpoint:
        raise ConfigError(
            "trainer.strategy.save_distributed_checkpoint = True: checkpoints are one file here, which any number of "
            "processes can go on from; set it to false"
        )
    from torch.distributed.fsdp import fully_shard  # takes a while, and few need it

    for layers in net.children():
        if isinstance(layers, nn.ModuleList):
            for layer in layers:
                fully_shard(layer, mesh=mesh["data_parallel"])
    fully_shard(net, mesh=mesh["data_parallel"])
