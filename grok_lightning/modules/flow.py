"""Regression networks for the two phases of gradient descent with weight decay (arXiv:2505.20172)."""

from typing import Literal

from grok_lightning.modules.base import GrokModule
from grok_lightning.nets.flow import DiagonalLinearNet, MatrixFactorizationNet, ReLUStudentNet
from grok_lightning.optim.losses import SquaredError
from grok_lightning.optim.recipe import OptimizerName, Recipe


class DiagonalLinear(GrokModule):
    """Diagonal linear network ``f(x) = ⟨u∘v, x⟩``, or plain linear regression at depth 1; half mean squared error.

    Args:
        n_features: Number of inputs; comes from the data.
        depth: 2 for β = u∘v, 1 for β = w.
        init_scale: α: u ~ N(0, α²) and v = 0, or w ~ N(0, α²).
        lr: Learning rate η; small against 2 / λ_max for gradient descent to follow the flow.
        weight_decay: Weight decay λ, the term (λ/2)‖w‖² under sgd and adam.
        optimizer: sgd (the theory's), adam, or adamw.
        momentum: Momentum of sgd.
        betas: Betas of adam and adamw.
        warmup_steps: Steps of linear learning-rate warm-up.
        tolerance: Accuracy is the share of rows with |f − y| ≤ tolerance, in units of the labels.
        compile: Put training steps through torch.compile, which needs a C++ compiler and up to a minute at the start.
    """

    def __init__(
        self,
        n_features: int,
        depth: Literal[1, 2] = 2,
        init_scale: float = 1.0,
        lr: float = 0.05,
        weight_decay: float = 0.001,
        optimizer: OptimizerName = "sgd",
        momentum: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int = 0,
        tolerance: float = 0.1,
        compile: bool = False,
    ) -> None:
        recipe = Recipe(
            lr=lr,
            weight_decay=weight_decay,
            optimizer=optimizer,
            momentum=momentum,
            betas=betas,
            warmup_steps=warmup_steps,
        )
        net = DiagonalLinearNet(n_features, depth, init_scale)
        super().__init__(net, recipe, SquaredError(tolerance=tolerance), compile)
        self.save_hyperparameters(logger=False)


class MatrixFactorization(GrokModule):
    """Matrix factorisation ``f(i, j) = (U Vᵀ)_ij``; half mean squared error over the observed entries.

    Args:
        matrix_size: Rows of the matrix, and columns; comes from the data.
        width: Columns of U and V; ``null`` for matrix_size.
        init_scale: α: entries of U and V ~ N(0, α²).
        lr: Learning rate η; small against 2 / λ_max for gradient descent to follow the flow.
        weight_decay: Weight decay λ, the term (λ/2)‖w‖² under sgd and adam.
        optimizer: sgd (the theory's), adam, or adamw.
        momentum: Momentum of sgd.
        betas: Betas of adam and adamw.
        warmup_steps: Steps of linear learning-rate warm-up.
        tolerance: Accuracy is the share of entries with |f − y| ≤ tolerance, in units of the labels.
        compile: Put training steps through torch.compile, which needs a C++ compiler and up to a minute at the start.
    """

    def __init__(
        self,
        matrix_size: int,
        width: int | None = None,
        init_scale: float = 1.0,
        lr: float = 1.0,
        weight_decay: float = 0.001,
        optimizer: OptimizerName = "sgd",
        momentum: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int = 0,
        tolerance: float = 0.1,
        compile: bool = False,
    ) -> None:
        recipe = Recipe(
            lr=lr,
            weight_decay=weight_decay,
            optimizer=optimizer,
            momentum=momentum,
            betas=betas,
            warmup_steps=warmup_steps,
        )
        net = MatrixFactorizationNet(matrix_size, width, init_scale)
        super().__init__(net, recipe, SquaredError(tolerance=tolerance), compile)
        self.save_hyperparameters(logger=False)


class ReLUStudent(GrokModule):
    """Two-layer network ``f(x) = ⟨a, relu(W x + b)⟩``; half mean squared error.

    Args:
        n_features: Number of inputs; comes from the data.
        hidden: Neurons (100 in the source).
        init_scale: α: a factor on all weights, so that f scales as α².
        lr: Learning rate η; small against 2 / λ_max for gradient descent to follow the flow.
        weight_decay: Weight decay λ, the term (λ/2)‖w‖² under sgd and adam; biases decay too.
        optimizer: sgd (the theory's), adam, or adamw.
        momentum: Momentum of sgd.
        betas: Betas of adam and adamw.
        warmup_steps: Steps of linear learning-rate warm-up.
        tolerance: Accuracy is the share of rows with |f − y| ≤ tolerance, in units of the labels.
        compile: Put training steps through torch.compile, which needs a C++ compiler and up to a minute at the start.
    """

    def __init__(
        self,
        n_features: int,
        hidden: int = 100,
        init_scale: float = 1.0,
        lr: float = 0.05,
        weight_decay: float = 0.001,
        optimizer: OptimizerName = "sgd",
        momentum: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int = 0,
        tolerance: float = 0.1,
        compile: bool = False,
    ) -> None:
        recipe = Recipe(
            lr=lr,
            weight_decay=weight_decay,
            optimizer=optimizer,
            momentum=momentum,
            betas=betas,
            warmup_steps=warmup_steps,
        )
        net = ReLUStudentNet(n_features, hidden, init_scale)
        super().__init__(net, recipe, SquaredError(tolerance=tolerance), compile)
        self.save_hyperparameters(logger=False)
