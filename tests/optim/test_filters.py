"""Grokfast and ⊥Grad against their papers' formulas in plain Python, and the order of what happens to a gradient."""

import copy
import io
from collections import deque

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingMLPNet
from grok_lightning.optim.filters import GradientFilter, StepHooks, orthogonalise
from grok_lightning.optim.recipe import Recipe, build_hooks, build_optimizer

TOKENS = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 7
EMA = GradientFilter(grokfast="ema", alpha=0.9, lam=2.0)
MA = GradientFilter(grokfast="ma", window=4, lam=5.0)


class Plain:
    """The two filters as their paper's listing has them: a dictionary, and a queue."""

    def __init__(self, options):
        self.options, self.means, self.queues = options, {}, {}

    def __call__(self, parameters):
        o = self.options
        for i, p in enumerate(parameters):
            if o.grokfast == "ema":
                self.means[i] = self.means[i] * o.alpha + p.grad * (1 - o.alpha) if i in self.means else p.grad.clone()
                p.grad = p.grad + o.lam * self.means[i]
            else:
                queue = self.queues.setdefault(i, deque(maxlen=o.window))
                queue.append(p.grad.clone())
                if len(queue) == o.window:
                    p.grad = p.grad + o.lam * sum(queue) / len(queue)


def make_net():
    torch.manual_seed(0)
    return EmbeddingMLPNet(9, 7, 8, 32).double()


def train(net, optimizer, steps, before=lambda parameters: None, clip=None):
    for step in range(steps):
        rows = torch.arange(step, step + 20)
        optimizer.zero_grad()
        F.cross_entropy(net(TOKENS[rows % 40]), LABELS[rows % 40]).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        before(list(net.parameters()))
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def filtered(options, **recipe):
    net = make_net()
    settings = Recipe(lr=0.01, gradient=options, **recipe)
    optimizer = build_optimizer(net, settings)
    build_hooks(optimizer, settings)
    return net, optimizer


@pytest.mark.parametrize("options", [EMA, MA], ids=["ema", "ma"])
@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_grokfast_is_its_papers_listing(options, kind):
    net, optimizer = filtered(options, optimizer=kind)
    theirs = make_net()
    plain = build_optimizer(theirs, Recipe(lr=0.01, optimizer=kind))
    expected = train(theirs, plain, 14, Plain(options), clip=0.5)
    assert torch.allclose(train(net, optimizer, 14, clip=0.5), expected, atol=1e-11, rtol=0)


@pytest.mark.parametrize("grokfast", ["ema", "ma"])
def test_grokfast_at_lambda_0_is_the_plain_optimiser(grokfast):
    net, optimizer = filtered(GradientFilter(grokfast=grokfast, lam=0.0, window=3))
    theirs = make_net()
    expected = train(theirs, build_optimizer(theirs, Recipe(lr=0.01)), 10)
    assert torch.equal(train(net, optimizer, 10), expected)


@pytest.mark.parametrize("options", [EMA, MA], ids=["ema", "ma"])
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_does_not_enter_the_memory(options, bad):
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    hooks = StepHooks(optimizer, options)
    for step in range(9):
        weight.grad = torch.full((3,), 2.0, dtype=torch.float64)
        if step == 6:
            weight.grad[1] = bad
        optimizer.step()
    assert float(hooks.memory_norm()) == pytest.approx(2 * 3**0.5, rel=1e-14)  # the mean of twos is two
    assert torch.allclose(weight.grad, torch.full((3,), 2.0 + options.lam * 2.0, dtype=torch.float64))


def test_orthogonalised_gradients():
    g, w = torch.tensor([3.0, 4.0]).double(), torch.tensor([1.0, 0.0]).double()
    assert torch.equal(orthogonalise(g, w), torch.tensor([0.0, 5.0]).double())  # (3, 4) less (3, 0), at length 5
    generator = torch.Generator().manual_seed(1)
    g, w = (torch.randn(6, 5, dtype=torch.float64, generator=generator) for _ in range(2))
    found = orthogonalise(g, w)
    assert abs(float((found * w).sum())) < 1e-13
    assert float(found.norm()) == pytest.approx(float(g.norm()), rel=1e-13)
    assert torch.equal(orthogonalise(g, torch.zeros(6, 5).double()), g)
    assert torch.equal(orthogonalise(3 * w, w), torch.zeros(6, 5).double())
    assert torch.equal(orthogonalise(torch.tensor([2.0]), torch.tensor([0.3])), torch.zeros(1))


def test_no_parameter_is_pushed_along_itself():
    net, optimizer = filtered(GradientFilter(orthogonal=True))
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(TOKENS), LABELS).backward()
        norms = [float(p.grad.norm()) for p in net.parameters()]
        weights = [p.detach().clone() for p in net.parameters()]
        optimizer.step()
    for p, w, norm in zip(net.parameters(), weights, norms, strict=True):
        assert abs(float((p.grad * w).sum())) < 1e-12
        assert float(p.grad.norm()) == pytest.approx(norm)


def test_clip_then_grokfast_then_orthogonal_then_step_by_hand():
    weight = torch.nn.Parameter(torch.tensor([1.0, 0.0], dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    StepHooks(optimizer, GradientFilter(grokfast="ema", lam=1.0, orthogonal=True))

    def closure():  # what Lightning hands over: backward and clipping
        weight.grad = torch.tensor([30.0, 40.0], dtype=torch.float64)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)  # (0.6, 0.8)

    optimizer.step(closure)
    # + λμ with μ = g: (1.2, 1.6), of norm 2; ⊥ w: (0, 2); then −0.1 of it.
    assert torch.allclose(weight.detach(), torch.tensor([1.0, -0.2]).double(), atol=1e-7)


def test_under_a_gradient_scaler_filters_see_unscaled_gradients_and_skip_skipped_steps():
    def run(scale):
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = torch.optim.Adam([weight], lr=0.1)
        hooks = StepHooks(optimizer, EMA)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1)
        for factor in (1.0, 2.0, float("inf"), 3.0):
            if factor == float("inf") and scale == 1:
                continue  # the scaler leaves this step out
            optimizer.zero_grad()
            scaler.scale((weight * weight * factor).sum()).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([weight], 0.5)
            scaler.step(optimizer)
            scaler.update()
        return weight.detach(), hooks.memory_norm()

    (scaled, memory), (plain, expected) = run(2.0**10), run(1)
    assert torch.equal(scaled, plain)
    assert torch.equal(memory, expected)


@pytest.mark.parametrize("options", [EMA, MA], ids=["ema", "ma"])
@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "muon"])
@pytest.mark.parametrize("cut", [2, 7])
def test_a_saved_optimiser_goes_on_bit_for_bit(options, kind, cut):
    whole = train(*filtered(options, optimizer=kind), 12)
    net, optimizer = filtered(options, optimizer=kind)
    train(net, optimizer, cut)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state, weights = torch.load(file, weights_only=True), copy.deepcopy(net.state_dict())
    net, optimizer = filtered(options, optimizer=kind)
    net.load_state_dict(weights)
    optimizer.load_state_dict(state)
    steps = iter(range(cut, 12))
    for step in steps:
        rows = torch.arange(step, step + 20)
        optimizer.zero_grad()
        F.cross_entropy(net(TOKENS[rows % 40]), LABELS[rows % 40]).backward()
        optimizer.step()
    assert torch.equal(torch.cat([p.detach().flatten() for p in net.parameters()]), whole)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("grokfast", {"grokfast": "fast"}),
        ("alpha", {"alpha": 1.0}),
        ("lam", {"lam": -1.0}),
        ("lam", {"lam": float("nan")}),
        ("window", {"window": 0}),
    ],
)
def test_bad_values_name_their_field(field, settings):
    with pytest.raises(ConfigError, match=f"model.gradient.{field} = "):
        Recipe(gradient=GradientFilter(**settings))
