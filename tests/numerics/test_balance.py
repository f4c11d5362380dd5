"""Balance of E and W against brute-force counting, a step worked out by hand, and real optimisers."""

import io
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from grok_lightning.data.batches import BatchOrder
from grok_lightning.data.tasks import Addition, build_table
from grok_lightning.nets.mlp import EmbeddingMLPNet
from grok_lightning.numerics.balance import BalanceMeter, group_norm, predicted_c, row_norms

P = 11


def batches(steps, size=6):
    table = build_table(Addition(), P)
    order = BatchOrder(len(table.tokens), size, order_seed=5)
    return [(table.tokens[order.rows(t)], table.labels[order.rows(t)]) for t in range(steps)]


def test_predicted_c_is_equation_24():
    assert predicted_c(sigma_E=6.0, sigma_W=2.0, f_E=0.25) == 12.0
    assert predicted_c(6.0, 2.0, 0.25, f_W=0.5) == 6.0


@pytest.mark.parametrize("bad", [(0.0, 1, 1), (1, 0.0, 1), (1, 1, 0.0), (math.nan, 1, 1), (1, math.inf, 1)])
def test_predicted_c_is_nan_where_it_is_undefined(bad):
    assert math.isnan(predicted_c(*bad))


def test_counts_and_frequencies_equal_brute_force_python():
    meter, steps = BalanceMeter(P), 40
    present, occurrences, coverage = [0] * (P + 2), [0] * (P + 2), []
    for tokens, _ in batches(steps):
        meter.count_tokens(tokens)
        seen = {t for row in tokens.tolist() for t in row}
        for row in tokens.tolist():
            for t in row:
                occurrences[t] += 1
        for t in seen:
            present[t] += 1
        coverage.append(len(seen & set(range(P))) / P)
    assert meter.token_counts.tolist() == occurrences
    assert meter.token_frequencies.tolist() == [n / steps for n in present]
    found = meter.summary(1.0, 1.0)
    assert 0.3 < found["f_E"] < 0.9  # a batch of 6 pairs leaves tokens out
    assert found["f_E"] == pytest.approx(sum(coverage) / steps)
    assert found["f_E"] == pytest.approx(sum(present[:P]) / P / steps)
    assert (found["f_OP"], found["f_EQ"], found["f_W"]) == (1.0, 1.0, 1.0)
    assert found["predicted_c"] == pytest.approx(1 / found["f_E"])


def test_op_and_eq_are_counted_where_present_and_kept_out_of_f_e():
    meter = BalanceMeter(2)  # tokens 0, 1, OP = 2, EQ = 3
    meter.count_tokens(torch.tensor([[0, 2, 0]]))
    meter.count_tokens(torch.tensor([[0, 2, 1]]))
    meter.count_tokens(torch.tensor([[1, 3, 1]]))
    meter.count_tokens(torch.tensor([[1, 2, 1]]))
    found = meter.summary(4.0, 2.0)
    assert (found["f_OP"], found["f_EQ"]) == (0.75, 0.25)
    assert found["f_E"] == pytest.approx((2 / 4 + 3 / 4) / 2)
    assert found["predicted_c"] == pytest.approx(2 / 0.625)


def test_norms_worked_out_by_hand_are_averaged_over_measured_steps():
    meter = BalanceMeter(1)
    grad_E = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 12.0]])  # rows 5, 0, 12; together 13
    weight, bias = torch.tensor([[2.0, 3.0]]), torch.tensor([6.0])  # together 7
    meter.add_norms(grad_E, [weight, bias], -0.1 * grad_E, (-0.01 * t for t in (weight, bias)))
    found = meter.summary(1.0, 1.0)
    assert (found["grad_norm_E"], found["grad_norm_W"]) == pytest.approx((13.0, 7.0))
    assert (found["update_norm_E"], found["update_norm_W"]) == pytest.approx((1.3, 0.07))
    assert (found["grad_ratio"], found["update_ratio"]) == pytest.approx((13 / 7, 130 / 7))
    meter.add_norms(3 * grad_E, [weight, bias], torch.zeros(3, 2), [weight, bias])
    assert meter.token_grad_norms.tolist() == pytest.approx([10.0, 0.0, 24.0])
    assert meter.token_update_norms.tolist() == pytest.approx([0.25, 0.0, 0.6])
    found = meter.summary(1.0, 1.0)
    assert (found["grad_norm_E"], found["grad_ratio"]) == pytest.approx((26.0, 26 / 7))


def trained(optimizer, steps=12):
    """Train a small net and measure each real step; returns the meter and the recorded tensors."""
    torch.manual_seed(0)
    net = EmbeddingMLPNet(P + 2, P, d_model=4, hidden=8)
    W = [net.first.weight, net.first.bias]
    step = optimizer(net, W)
    meter, record = BalanceMeter(P), []
    for tokens, labels in batches(steps):
        cross_entropy(net(tokens), labels).backward()
        before = [p.detach().clone() for p in (net.E, *W)]
        grads = [p.grad.clone() for p in (net.E, *W)]
        step.step()
        step.zero_grad()
        deltas = [(p - b).detach() for p, b in zip((net.E, *W), before, strict=True)]
        meter.count_tokens(tokens)
        meter.add_norms(grads[0], grads[1:], deltas[0], deltas[1:])
        record.append((tokens, grads, deltas))
    return meter, record


def sgd(net, W):
    rest = [p for n, p in net.named_parameters() if n != "E"]
    return torch.optim.SGD([{"params": [net.E], "lr": 0.5}, {"params": rest}], lr=0.05)


def adam(net, W):
    return torch.optim.Adam(net.parameters(), lr=1e-2)


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_measured_norms_equal_flattened_norms_of_a_real_run(optimizer):
    meter, record = trained(optimizer)
    found = meter.summary(1.0, 1.0)

    def mean_norm(which, part):
        flat = [torch.cat([t.flatten() for t in step[which][part]]).double() for step in record]
        return sum(float(x.square().sum().sqrt()) for x in flat) / len(flat)

    E, W = slice(0, 1), slice(1, 3)
    for name, which in (("grad", 1), ("update", 2)):
        assert found[f"{name}_norm_E"] == pytest.approx(mean_norm(which, E), rel=1e-5)
        assert found[f"{name}_norm_W"] == pytest.approx(mean_norm(which, W), rel=1e-5)
        ratio = mean_norm(which, E) / mean_norm(which, W)
        assert found[f"{name}_ratio"] == pytest.approx(ratio, rel=1e-5)


def test_under_sgd_the_update_ratio_is_c_times_the_gradient_ratio_and_absent_rows_rest():
    meter, record = trained(sgd)
    found = meter.summary(1.0, 1.0)
    assert found["update_ratio"] == pytest.approx(10 * found["grad_ratio"], rel=1e-4)
    # a row has a gradient at exactly the steps at which its token is present: f_i is its update frequency
    moved = torch.stack([row_norms(deltas[0]) > 0 for _, _, deltas in record])
    assert torch.equal(moved.double().mean(0), meter.token_frequencies)


def test_under_adam_rows_move_more_often_than_their_tokens_are_present():
    meter, record = trained(adam)
    moved = torch.stack([row_norms(deltas[0]) > 0 for _, _, deltas in record]).double().mean(0)
    assert float(moved[:P].mean()) > 1.1 * meter.summary(1.0, 1.0)["f_E"]


def test_an_interrupted_window_continues_from_a_weights_only_file():
    whole, first = BalanceMeter(P), BalanceMeter(P)
    steps = batches(9)
    rows = [torch.randn(P + 2, 3, generator=torch.Generator().manual_seed(t)) for t in range(9)]

    def feed(meter, t):
        meter.count_tokens(steps[t][0])
        meter.add_norms(rows[t], [rows[t][:2]], 0.1 * rows[t], [rows[t][:1]])

    for t in range(9):
        feed(whole, t)
    for t in range(4):
        feed(first, t)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    feed(first, 4)  # what happens after saving must not reach into the saved state
    file.seek(0)
    second = BalanceMeter(P)
    second.load_state_dict(torch.load(file, weights_only=True))
    for t in range(4, 9):
        feed(second, t)
    assert second.summary(2.0, 3.0) == whole.summary(2.0, 3.0)
    for name in ("token_counts", "token_frequencies", "token_grad_norms", "token_update_norms"):
        assert torch.equal(getattr(second, name), getattr(whole, name))
    with pytest.raises(ValueError, match="7 tokens"):
        second.load_state_dict(BalanceMeter(5).state_dict())


def test_a_saved_state_is_a_copy():
    meter = BalanceMeter(P)
    meter.count_tokens(torch.tensor([[1, 2]]))
    state = meter.state_dict()
    meter.count_tokens(torch.tensor([[1, 2]]))
    assert state["present"][1] == 1
    assert state["steps"] == 1


def test_an_empty_window_says_nan_and_reset_opens_one():
    meter = BalanceMeter(P)
    fresh = meter.summary(1.0, 1.0)
    for tokens, _ in batches(2):
        meter.count_tokens(tokens)
    E = torch.ones(P + 2, 2)
    meter.add_norms(E, [], E, [])
    assert math.isnan(meter.summary(1.0, 1.0)["grad_ratio"])  # no W at all
    assert meter.summary(1.0, 1.0)["grad_norm_W"] == 0.0
    meter.reset()
    for found in (fresh, meter.summary(1.0, 1.0)):
        assert found.pop("f_W") == found.pop("sigma_E") == found.pop("sigma_W") == 1.0
        assert len(found) == 10
        assert all(math.isnan(x) for x in found.values())
    assert meter.token_counts.sum() == 0


def test_group_norm_of_parameters_leaves_no_graph():
    layer = nn.Linear(3, 2)
    found = group_norm(layer.parameters())
    assert not found.requires_grad
    assert not row_norms(layer.weight).requires_grad
    flat = nn.utils.parameters_to_vector(layer.parameters())
    assert float(found) == pytest.approx(float(flat.detach().norm()))
