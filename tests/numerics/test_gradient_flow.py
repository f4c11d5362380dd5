"""The flow against a closed form, and gradient descent against the flow."""

import pytest
import torch
from scipy.linalg import expm

from grok_lightning.data.regression import SparseRegression
from grok_lightning.errors import ConfigError
from grok_lightning.nets.flow import DiagonalLinearNet, MatrixFactorizationNet
from grok_lightning.numerics.gradient_flow import gradient_flow
from grok_lightning.numerics.interpolators import least_l1
from grok_lightning.optim.losses import SquaredError

DECAY = 0.05


@pytest.fixture
def problem():
    torch.manual_seed(0)
    data = SparseRegression(n_features=8, n_nonzero=2, n_train=5, n_val=1, n_test=1)
    return data.inputs[data.split.train], data.labels[data.split.train]


def test_linear_regression_follows_the_matrix_exponential(problem):
    """w' = −(A + λ)w + b with A = XᵀX/n, b = Xᵀy/n."""
    X, y = problem
    net = DiagonalLinearNet(8, 1).double()
    A = X.T @ X / 5 + DECAY * torch.eye(8, dtype=torch.float64)
    end = torch.linalg.solve(A, X.T @ y / 5)
    times = [0.0, 0.3, 4.0, 100.0]
    for t, found in zip(times, gradient_flow(net, X, y, SquaredError(), DECAY, times), strict=True):
        exact = end + torch.from_numpy(expm(-A.numpy() * t)) @ (net.w.detach() - end)
        assert torch.allclose(found["w"], exact, atol=1e-6)


@pytest.mark.parametrize("kind", ["diagonal", "factors"])
def test_gradient_descent_approaches_the_flow_to_first_order(problem, kind):
    """Halving the step halves the distance at a fixed time."""
    X, y = problem
    torch.manual_seed(1)
    net = (DiagonalLinearNet(8) if kind == "diagonal" else MatrixFactorizationNet(3)).double()
    if kind == "factors":
        X = torch.tensor([[0, 0], [0, 1], [1, 2], [2, 1], [2, 2]])
    (flow,) = gradient_flow(net, X, y, SquaredError(), DECAY, [2.0])
    start, errors = {name: p.detach().clone() for name, p in net.named_parameters()}, []
    for steps in (200, 400, 800):
        net.load_state_dict(start)
        optimizer = torch.optim.SGD(net.parameters(), lr=2.0 / steps, weight_decay=DECAY)
        for _ in range(steps):
            optimizer.zero_grad()
            SquaredError()(net(X), y).backward()
            optimizer.step()
        errors.append(float(sum((p.detach() - flow[name]).square().sum() for name, p in net.named_parameters())) ** 0.5)
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)
    assert errors[2] < 1e-2


@pytest.mark.slow
def test_the_second_phase_ends_near_the_least_l1_interpolator(problem):
    """A time of 1e6 at λ = 1e-5, out of reach of gradient descent; the end is O(λ) from the solution of the LP."""
    X, y = problem
    net = DiagonalLinearNet(8, 2, 1.0).double()
    target = torch.from_numpy(least_l1(X.numpy(), y.numpy()))
    first, last = gradient_flow(net, X, y, SquaredError(), 1e-5, [1e3, 1e6], rtol=1e-7, atol=1e-9)
    early, late = (float((w["u"] * w["v"] - target).norm() / target.norm()) for w in (first, last))
    assert late < 1e-3 < early
    norm = sum(float(p.square().sum()) for p in last.values()) / 2
    assert norm == pytest.approx(float(target.abs().sum()), rel=1e-3)  # ½(‖u‖² + ‖v‖²) = ‖β‖₁ at the end


@pytest.mark.parametrize(
    ("times", "decay", "message"),
    [([], 0.1, "times = []: must increase"), ([1.0, 1.0], 0.1, "must increase"), ([1.0], -1.0, "weight_decay = -1.0")],
)
def test_bad_values_are_refused(problem, times, decay, message):
    with pytest.raises(ConfigError) as error:
        gradient_flow(DiagonalLinearNet(8), *problem, SquaredError(), decay, times)
    assert message in str(error.value)


def test_the_network_is_left_as_it_is(problem):
    net = DiagonalLinearNet(8)
    before = net.u.detach().clone()
    assert torch.equal(gradient_flow(net, *problem, SquaredError(), 0.1, [0.0])[0]["u"], before.double())
    gradient_flow(net, *problem, SquaredError(), 0.1, [1.0])
    assert torch.equal(net.u, before)
    assert net.u.dtype == torch.float32
    assert net.u.grad is None
