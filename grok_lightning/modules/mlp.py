"""The multilayer perceptrons, with and without an embedding."""

from grok_lightning.modules.base import GrokModule
from grok_lightning.modules.settings import as_options
from grok_lightning.nets.embedding import TRAINED, EmbeddingOptions
from grok_lightning.nets.mlp import Combine, EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.optim.clamp import UNCLAMPED, NormClamp
from grok_lightning.optim.filters import UNFILTERED, GradientFilter
from grok_lightning.optim.losses import Loss, LossDtype, LossName
from grok_lightning.optim.recipe import OptimizerName, Recipe


class EmbeddingMLP(GrokModule):
    """MLP with a trained embedding (arXiv:2505.15624, eq. 2).

    Args:
        vocab_size: Number of tokens; comes from the data.
        n_classes: Number of labels; comes from the data.
        d_model: Embedding dimension (128 in the paper).
        hidden: Width of the hidden layers; ``null`` for 4 · d_model (512 in the paper).
        depth: Number of linear layers, output layer included (2 in the paper).
        embedding: What E is and starts as: its scale, rank, source, or fixed features in its place.
        combine: concat, or sum of the four embeddings.
        residual: Whether hidden layers add to what they read (depth 3 or more).
        init_scale: Factor on all parameters at the start (arXiv:2210.01117).
        lr: Learning rate η of everything but the embedding.
        c: Ratio of the embedding's learning rate to η.
        weight_decay: Weight decay λ: coupled L2 under adam and sgd, decoupled under adamw.
        optimizer: adam, adamw, sgd, or muon for hidden matrices with adam for the rest.
        momentum: Momentum of sgd.
        betas: Betas of adam and adamw.
        warmup_steps: Steps of linear learning-rate warm-up.
        decay_scales_with_c: Whether the embedding's decay moves with c (adamw and sgd only).
        muon_lr: Learning rate of muon's matrices, about the spectral norm of an update; ``null`` for η.
        muon_momentum: Momentum of muon.
        gradient: Filters of the gradient between clipping and the step: Grokfast, ⊥Grad.
        weight_decay_embedding: λ of E alone; ``null`` for weight_decay.
        weight_decay_first_layer: λ of the layer that reads E alone; ``null`` for weight_decay.
        weight_decay_rest: λ of everything else; ``null`` for weight_decay.
        clamp: Holds the norm of all weights at a multiple of the critical norm.
        freeze_embedding_at: Steps after which E stands still, 0 from the start; ``null`` for never.
        loss: cross_entropy, stablemax (cross-entropy of StableMax), or mse (on one-hot labels).
        loss_dtype: float32 or float64 for the loss alone; ``null`` for the dtype of the logits, float32 at least.
        compile: Put training steps through torch.compile, which needs a C++ compiler and up to a minute at the start.
    """

    def __init__(
        self,
        vocab_size: int,
        n_classes: int,
        d_model: int = 128,
        hidden: int | None = None,
        depth: int = 2,
        embedding: EmbeddingOptions = TRAINED,
        combine: Combine = "concat",
        residual: bool = False,
        init_scale: float = 1.0,
        lr: float = 0.01,
        c: float = 1.0,
        weight_decay: float = 0.001,
        optimizer: OptimizerName = "adam",
        momentum: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int = 0,
        decay_scales_with_c: bool = True,
        muon_lr: float | None = None,
        muon_momentum: float = 0.95,
        gradient: GradientFilter = UNFILTERED,
        weight_decay_embedding: float | None = None,
        weight_decay_first_layer: float | None = None,
        weight_decay_rest: float | None = None,
        clamp: NormClamp = UNCLAMPED,
        freeze_embedding_at: int | None = None,
        loss: LossName = "cross_entropy",
        loss_dtype: LossDtype | None = None,
        compile: bool = False,
    ) -> None:
        recipe = Recipe(
            lr=lr,
            c=c,
            weight_decay=weight_decay,
            optimizer=optimizer,
            momentum=momentum,
            betas=betas,
            warmup_steps=warmup_steps,
            decay_scales_with_c=decay_scales_with_c,
            muon_lr=muon_lr,
            muon_momentum=muon_momentum,
            gradient=as_options(GradientFilter, gradient),
            weight_decay_embedding=weight_decay_embedding,
            weight_decay_first_layer=weight_decay_first_layer,
            weight_decay_rest=weight_decay_rest,
            clamp=as_options(NormClamp, clamp),
            freeze_embedding_at=freeze_embedding_at,
        )
        width = 4 * d_model if hidden is None else hidden
        options = as_options(EmbeddingOptions, embedding)
        shape = (vocab_size, n_classes, d_model, width, depth)
        net = EmbeddingMLPNet(*shape, options, combine, residual, init_scale)
        super().__init__(net, recipe, Loss(loss, loss_dtype), compile)
        self.save_hyperparameters(logger=False)  # the run's whole config goes to the loggers instead


class EmbeddingFreeMLP(GrokModule):
    """MLP on the raw token numbers (arXiv:2505.15624, eq. 1).

    Args:
        vocab_size: Number of tokens; comes from the data.
        n_classes: Number of labels; comes from the data.
        d_model: Only sets the default width, so that both MLPs compare at 4 · d_model.
        hidden: Width of the hidden layers; ``null`` for 4 · d_model (512 in the paper).
        depth: Number of linear layers, output layer included (2 in the paper).
        input_scale: Factor on the token numbers; 1 feeds them as they are, as the paper does.
        residual: Whether hidden layers add to what they read (depth 3 or more).
        init_scale: Factor on all parameters at the start (arXiv:2210.01117).
        lr: Learning rate η.
        c: Has to be 1: there is no embedding to scale.
        weight_decay: Weight decay λ: coupled L2 under adam and sgd, decoupled under adamw.
        optimizer: adam, adamw, sgd, or muon for hidden matrices with adam for the rest.
        momentum: Momentum of sgd.
        betas: Betas of adam and adamw.
        warmup_steps: Steps of linear learning-rate warm-up.
        decay_scales_with_c: Whether the embedding's decay moves with c (no embedding here: no effect).
        muon_lr: Learning rate of muon's matrices, about the spectral norm of an update; ``null`` for η.
        muon_momentum: Momentum of muon.
        gradient: Filters of the gradient between clipping and the step: Grokfast, ⊥Grad.
        weight_decay_first_layer: λ of the first layer alone; ``null`` for weight_decay.
        weight_decay_rest: λ of everything else; ``null`` for weight_decay.
        clamp: Holds the norm of all weights at a multiple of the critical norm.
        loss: cross_entropy, stablemax (cross-entropy of StableMax), or mse (on one-hot labels).
        loss_dtype: float32 or float64 for the loss alone; ``null`` for the dtype of the logits, float32 at least.
        compile: Put training steps through torch.compile, which needs a C++ compiler and up to a minute at the start.
    """

    def __init__(
        self,
        vocab_size: int,
        n_classes: int,
        d_model: int = 128,
        hidden: int | None = None,
        depth: int = 2,
        input_scale: float = 1.0,
        residual: bool = False,
        init_scale: float = 1.0,
        lr: float = 0.01,
        c: float = 1.0,
        weight_decay: float = 0.001,
        optimizer: OptimizerName = "adam",
        momentum: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_steps: int = 0,
        decay_scales_with_c: bool = True,
        muon_lr: float | None = None,
        muon_momentum: float = 0.95,
        gradient: GradientFilter = UNFILTERED,
        weight_decay_first_layer: float | None = None,
        weight_decay_rest: float | None = None,
        clamp: NormClamp = UNCLAMPED,
        loss: LossName = "cross_entropy",
        loss_dtype: LossDtype | None = None,
        compile: bool = False,
    ) -> None:
        recipe = Recipe(
            lr=lr,
            c=c,
            weight_decay=weight_decay,
            optimizer=optimizer,
            momentum=momentum,
            betas=betas,
            warmup_steps=warmup_steps,
            decay_scales_with_c=decay_scales_with_c,
            muon_lr=muon_lr,
            muon_momentum=muon_momentum,
            gradient=as_options(GradientFilter, gradient),
            weight_decay_first_layer=weight_decay_first_layer,
            weight_decay_rest=weight_decay_rest,
            clamp=as_options(NormClamp, clamp),
        )
        width = 4 * d_model if hidden is None else hidden
        net = EmbeddingFreeMLPNet(vocab_size, n_classes, width, depth, input_scale, residual, init_scale)
        super().__init__(net, recipe, Loss(loss, loss_dtype), compile)
        self.save_hyperparameters(logger=False)
