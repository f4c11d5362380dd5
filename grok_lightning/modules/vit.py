"""The Vision Transformer."""

from grok_lightning.modules.base import GrokModule
from grok_lightning.modules.settings import as_options
from grok_lightning.nets.vit import Pool, ViTNet
from grok_lightning.optim.clamp import UNCLAMPED, NormClamp
from grok_lightning.optim.filters import UNFILTERED, GradientFilter
from grok_lightning.optim.losses import Loss, LossDtype, LossName
from grok_lightning.optim.recipe import OptimizerName, Recipe


class ViT(GrokModule):
    """Vision Transformer without dropout; the defaults are the sizes of the authors' CIFAR runs (arXiv:2505.15624).

    Args:
        n_classes: Number of labels; comes from the data.
        image_size: Pixels per side; comes from the data.
        channels: Colours per pixel; comes from the data.
        patch_size: Pixels per side of a patch (8 there; 4 if they counted patches per side); divides image_size.
        d_model: Width of the residual stream (384 there).
        n_layers: Number of layers (7 there).
        n_heads: Attention heads per layer (8 there); divides d_model.
        d_mlp: Width of the MLP; ``null`` for 4 · d_model.
        pool: What the logits are read from: class_token, or the mean over patches.
        lr: Learning rate η of everything but the embedding.
        c: Ratio of the embedding's learning rate to η (patch projection, positions and class token).
        weight_decay: Weight decay λ: coupled L2 under adam and sgd, decoupled under adamw.
        optimizer: adam, adamw, sgd, or muon for hidden matrices with adam for the rest.
        momentum: Momentum of sgd.
        betas: Betas of adam and adamw.
        warmup_steps: Steps of linear learning-rate warm-up.
        decay_scales_with_c: Whether the embedding's decay moves with c (adamw and sgd only).
        muon_lr: Learning rate of muon's matrices, about the spectral norm of an update; ``null`` for η.
        muon_momentum: Momentum of muon.
        gradient: Filters of the gradient between clipping and the step: Grokfast, ⊥Grad.
        weight_decay_embedding: λ of the embedding alone; ``null`` for weight_decay.
        weight_decay_first_layer: λ of the layer that reads it alone; ``null`` for weight_decay.
        weight_decay_rest: λ of everything else; ``null`` for weight_decay.
        clamp: Holds the norm of all weights at a multiple of the critical norm.
        freeze_embedding_at: Steps after which the embedding stands still, 0 from the start; ``null`` for never.
        loss: cross_entropy, stablemax (cross-entropy of StableMax), or mse (on one-hot labels).
        loss_dtype: float32 or float64 for the loss alone; ``null`` for the dtype of the logits, float32 at least.
        compile: Put training steps through torch.compile, which needs a C++ compiler and up to a minute at the start.
    """

    def __init__(
        self,
        n_classes: int,
        image_size: int,
        channels: int,
        patch_size: int = 8,
        d_model: int = 384,
        n_layers: int = 7,
        n_heads: int = 8,
        d_mlp: int | None = None,
        pool: Pool = "class_token",
        lr: float = 0.001,
        c: float = 1.0,
        weight_decay: float = 0.0,
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
        width = 4 * d_model if d_mlp is None else d_mlp
        net = ViTNet(n_classes, image_size, channels, patch_size, d_model, n_layers, n_heads, width, pool)
        super().__init__(net, recipe, Loss(loss, loss_dtype), compile)
        self.save_hyperparameters(logger=False)
