"""The regression networks against what they are said to compute."""

import pytest
import torch

from grok_lightning.errors import ConfigError
from grok_lightning.nets.flow import DiagonalLinearNet, MatrixFactorizationNet, ReLUStudentNet
from grok_lightning.optim.losses import SquaredError


def test_a_diagonal_network_is_linear_in_its_input_and_starts_at_zero():
    net = DiagonalLinearNet(4, 2, init_scale=3.0).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    assert net(x).tolist() == [0.0] * 5
    assert bool((net.u != 0).all())
    with torch.no_grad():
        net.u.copy_(torch.tensor([1.0, 2, 3, 4]))
        net.v.copy_(torch.tensor([1.0, 0, -1, 0.5]))
    assert net.linear_map().tolist() == [1.0, 0.0, -3.0, 2.0]
    assert torch.allclose(net(x), x[:, 0] - 3 * x[:, 2] + 2 * x[:, 3])
    assert torch.equal(net(x.float()), net(x.float().double()))  # inputs follow the parameters


def test_gradient_descent_on_u_v_is_that_on_half_the_difference_of_squares():
    """β = u∘v with u = (a + b)/√2, v = (a − b)/√2: the rotation commutes with every update."""
    net = DiagonalLinearNet(6).double()
    with torch.no_grad():
        net.v.normal_()
    a, b = ((net.u + s * net.v).detach() / 2**0.5 for s in (1, -1))
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        SquaredError()(net(x), y).backward()
        optimizer.step()
        gradient = x.T @ (x @ (a**2 - b**2) / 2 - y) / 4
        a, b = a - 0.01 * (a * gradient + 0.1 * a), b - 0.01 * (-b * gradient + 0.1 * b)
    assert torch.allclose(net.linear_map(), (a**2 - b**2) / 2, atol=1e-12)
    assert torch.allclose((net.u**2 + net.v**2).sum(), (a**2 + b**2).sum())


def test_depth_1_is_linear_regression():
    net = DiagonalLinearNet(3, 1, 2.0)
    assert [name for name, _ in net.named_parameters()] == ["w"]
    assert torch.equal(net.linear_map(), net.w)


def test_matrix_factorisation_reads_entries_of_the_product():
    net = MatrixFactorizationNet(5, 2)
    pairs = torch.tensor([[0, 4], [3, 3], [2, 0]])
    product = net.U @ net.V.T
    assert torch.allclose(net(pairs), torch.stack([product[0, 4], product[3, 3], product[2, 0]]))
    assert torch.allclose(net.matrices()["M"], product)
    assert net.U.shape == (5, 2)
    assert MatrixFactorizationNet(5).V.shape == (5, 5)


def test_the_student_is_a_sum_of_neurons_and_scales_as_alpha_squared():
    torch.manual_seed(0)
    net = ReLUStudentNet(2, 3, 1.0)
    x = torch.randn(4, 2)
    by_hand = sum(net.a[j] * torch.clamp(x @ net.W[j] + net.b[j], min=0) for j in range(3))
    assert torch.allclose(net(x), by_hand, atol=1e-6)
    torch.manual_seed(0)
    assert torch.allclose(ReLUStudentNet(2, 3, 3.0)(x), 9 * net(x), rtol=1e-4, atol=1e-6)
    assert net.blocks() == {"first_layer": ["W", "b"], "rest": ["a"]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalLinearNet(3, 3), "model.depth = 3: must be 1 or 2"),
        (lambda: DiagonalLinearNet(3, 2, -1.0), "model.init_scale = -1.0: must be 0 or more"),
        (lambda: MatrixFactorizationNet(3, 0), "model.width = 0: must be 1 or more, or null"),
        (lambda: ReLUStudentNet(3, 0), "model.hidden = 0: must be 1 or more"),
        (lambda: SquaredError(tolerance=0.0), "model.tolerance = 0.0: must be greater than 0"),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(ConfigError) as error:
        make()
    assert message in str(error.value)


def test_squared_error_is_half_the_mean_and_accuracy_a_share_within_the_tolerance():
    loss = SquaredError(tolerance=0.5)
    outputs, labels = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.5, 2.0, 2.0], dtype=torch.float64)
    assert float(loss(outputs, labels)) == pytest.approx((0.25 + 0 + 9) / 6)
    assert float(loss(outputs, labels, "sum")) == pytest.approx((0.25 + 0 + 9) / 2)
    assert loss(outputs, labels, "none").tolist() == [0.125, 0.0, 4.5]
    assert loss.correct(outputs, labels).tolist() == [True, True, False]
    assert torch.equal(loss.predict(outputs), outputs)
    assert loss.classifies is False
