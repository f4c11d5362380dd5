"""What a notebook imports from the package itself: train, load a run and its network, measure any module."""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from grok_lightning.errors import ConfigError, require
from grok_lightning.numerics.hvp import ALL, HessianOperator, Loss
from grok_lightning.numerics.lanczos import lanczos
from grok_lightning.numerics.spectra import rank_summary, singular_values
from grok_lightning.recorded import RecordedRun, load_run

if TYPE_CHECKING:
    from grok_lightning.data.table import TableDataModule
    from grok_lightning.nets.base import Net

__all__ = [
    "LargestEigenvalue", "RecordedRun", "Spectrum",
    "fit", "lambda_max", "load_data", "load_net", "load_run", "spectrum",
]  # fmt: skip


@dataclass(frozen=True)
class LargestEigenvalue:
    """λ_max of a Hessian block, and how well it is known.

    Attributes:
        value: The algebraically largest eigenvalue, in nats for cross-entropy.
        residual: ‖Hv − λv‖ / |λ|.
        converged: Whether the residual met the tolerance.
        n_hvp: Hessian-vector products taken.
        lambda_min: Smallest Ritz value, an upper bound of the smallest eigenvalue.
        loss: The mean loss whose Hessian it is.
    """

    value: float
    residual: float
    converged: bool
    n_hvp: int
    lambda_min: float
    loss: float


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a matrix and every rank notion; formulas in ``docs/measurements.md``.

    Attributes:
        sigma: float64, descending, shape (min(m, n),).
        erank: exp(entropy of σ/Σσ).
        erank_sq: exp(entropy of σ²/Σσ²).
        stable_rank: Σσ² / σ₁².
        participation_ratio: (Σσ²)² / Σσ⁴.
        numerical_rank: Number of σ > σ₁ · max(m, n) · 2⁻²³.
    """

    sigma: Tensor
    erank: float
    erank_sq: float
    stable_rank: float
    participation_ratio: float
    numerical_rank: float


def fit(*arguments: object) -> RecordedRun:
    """Train in this process, as ``python -m grok_lightning fit`` does.

    Args:
        *arguments: The command line after ``fit``: ``"--config", "configs/addition.yaml", "--model.c", 4``.

    Returns:
        The record of the run.

    Raises:
        ConfigError: If a value cannot be used.
    """
    from jsonargparse import ArgumentError

    from grok_lightning.cli import main
    from grok_lightning.jobs import mistake_behind, one_line, quiet
    from grok_lightning.loggers.run_record import RunRecord

    try:
        with warnings.catch_warnings():
            quiet()
            trainer = main(["fit", *map(str, arguments)]).trainer
    except ArgumentError as error:
        raise ConfigError(one_line(str(error))) from error
    except Exception as error:
        if (mistake := mistake_behind(error)) is None:
            raise
        raise ConfigError(one_line(str(mistake))) from error
    record = next(logger for logger in trainer.loggers if isinstance(logger, RunRecord))
    return load_run(record.path)


def load_net(path: Path | str) -> "Net":
    """The network of a run, with the weights of its last checkpoint, on the CPU and in evaluation mode.

    The class is the one that ``config.yaml`` names; nothing in the checkpoint is executed.

    Args:
        path: The run directory.

    Raises:
        ConfigError: If the run has no checkpoint or configuration, or they do not fit.
    """
    from grok_lightning.modules.base import GrokModule
    from grok_lightning.refusals import read_checkpoint

    run, file = load_run(path), Path(path) / "checkpoints" / "last.ckpt"
    require(file.is_file(), "run", str(path), f"has no checkpoint {file.name}")
    read_checkpoint(str(file))
    cls, _ = _class_of(run.config.get("model"), "model")
    require(isinstance(cls, type) and issubclass(cls, GrokModule), "model", cls, "must be a GrokModule")
    content = torch.load(file, map_location="cpu", weights_only=True)
    made = {name: value for name, value in content["hyper_parameters"].items() if not name.startswith("_")}
    try:
        module: GrokModule = cls(**made)
        module.load_state_dict(content["state_dict"])
    except (TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"run = {str(path)!r}: its checkpoint does not fit {cls.__name__}: {reason}") from error
    return module.net.eval()


def load_data(path: Path | str) -> "TableDataModule":
    """The data of a run and their split, made again from ``config.yaml``.

    ``data.inputs[data.rows("train_full")]`` are the training rows; ``val`` and ``test`` are the others.

    Args:
        path: The run directory.

    Raises:
        ConfigError: If the configuration does not say, or names what cannot be imported.
    """
    from grok_lightning.data.table import TableDataModule
    from grok_lightning.resume import with_class

    config = with_class(load_run(path).config)
    if not isinstance(config.get("data"), Mapping):
        raise ConfigError(f"run = {str(path)!r}: its config.yaml names no data")
    cls, settings = _class_of(config["data"], "data")
    require(isinstance(cls, type) and issubclass(cls, TableDataModule), "data", cls, "must be a TableDataModule")
    if isinstance(settings.get("task"), Mapping):
        task, arguments = _class_of(settings["task"], "data.task")
        settings["task"] = task(**arguments)
    data: TableDataModule = cls(**settings)
    return data


def _class_of(stated: object, name: str) -> tuple[Any, dict[str, Any]]:
    """The class that a configuration names, and its arguments."""
    spec = stated if isinstance(stated, Mapping) else {}
    path = str(spec.get("class_path"))
    require("." in path, f"{name}.class_path", spec.get("class_path"), "is no module.Class")
    module, _, cls = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), cls), dict(spec.get("init_args") or {})
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{name}.class_path = {path!r}: cannot be imported: {error}") from error


def lambda_max(
    module: nn.Module,
    tokens: Tensor,
    labels: Tensor,
    parameters: Sequence[str] | None = None,
    *,
    loss: Loss = cross_entropy,
    tol: float = 1e-3,
    max_krylov: int = 100,
    chunk_size: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> LargestEigenvalue:
    """``λ_max(∂²L/∂θ_b²)``, L the mean loss over the samples given (arXiv:2505.15624, C.1), by Lanczos.

    The module is not changed; it is evaluated in eval mode.

    Args:
        module: Any module ``inputs → outputs``; it needs no property of a ``Net``.
        tokens: Its inputs, shape (N, …): int64 tokens for the networks of this package.
        labels: What the loss takes, shape (N,).
        parameters: Names of the parameters of the block, as in ``named_parameters``; ``None`` for all.
        loss: ``loss(outputs, labels)``, the mean over its samples.
        tol: Relative residual up to which the eigenvalue counts as converged.
        max_krylov: Largest basis; it gives up after three times as many products.
        chunk_size: Samples per graph, which bounds the memory; ``None`` for all at once.
        dtype: Of the products: float32, or float64 to verify.
        seed: Seed of the start vector.

    Raises:
        ConfigError: On unknown names, sparse embeddings or half-precision parameters.
    """
    blocks = {} if parameters is None else {"block": list(parameters)}
    name = ALL if parameters is None else "block"
    with HessianOperator(module, tokens, labels, blocks, loss=loss, dtype=dtype, chunk_size=chunk_size) as operator:
        found = lanczos(
            operator.matvec(name),
            operator.sizes[name],
            tol=tol,
            max_krylov=max_krylov,
            max_matvec=3 * max_krylov,
            seed=seed,
            dtype=dtype,
            device=operator.device,
        )
        value = operator.loss_value
    return LargestEigenvalue(
        float(found.eigenvalues[0]),
        float(found.relative_residuals[0]),
        bool(found.converged[0]),
        found.n_matvec,
        found.lambda_min,
        value,
    )


def spectrum(matrix: Any) -> Spectrum:
    """All singular values of a matrix in float64, and every rank notion.

    Args:
        matrix: Real, shape (m, n): a tensor, or what ``torch.as_tensor`` takes.

    Raises:
        ConfigError: If it has not two axes.
    """
    values = torch.as_tensor(matrix)
    require(values.ndim == 2, "matrix", tuple(values.shape), "must have two axes")
    sigma = singular_values(values)
    return Spectrum(sigma.cpu(), **rank_summary(sigma, (values.shape[0], values.shape[1])))
