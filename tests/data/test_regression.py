"""The regression problems: what they promise of labels, splits and seeds; and plain gradient descent as an order."""

import pytest
import torch

from grok_lightning.data.batches import FULL_BATCH_EPOCH, BatchLoader, BatchOrder, FullBatch
from grok_lightning.data.regression import MatrixCompletion, SparseRegression, TeacherStudent
from grok_lightning.errors import ConfigError

KINDS = [SparseRegression, MatrixCompletion, TeacherStudent]


@pytest.mark.parametrize("kind", KINDS)
def test_the_problem_is_a_function_of_split_seed_and_parts_are_disjoint(kind):
    one, same, other = kind(split_seed=3), kind(split_seed=3, order_seed=9), kind(split_seed=4)
    assert torch.equal(one.labels, same.labels)
    assert one.split.digest() == same.split.digest()
    assert not torch.equal(one.labels, other.labels)
    assert one.labels.dtype == torch.float64
    assert sorted(torch.cat([one.split.train, one.split.val, one.split.test]).tolist()) == list(range(len(one.labels)))


def test_drawing_a_problem_leaves_the_global_seed_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    for kind in KINDS:
        kind()
    assert torch.equal(torch.rand(1), expected)


def test_sparse_regression():
    data = SparseRegression(n_features=30, n_nonzero=4, n_train=20, n_val=20_000, n_test=7)
    assert data.truth.abs().unique().tolist() == [0.0, 0.5]  # 1/√4
    assert int((data.truth != 0).sum()) == 4
    for row in (0, 19, 20_026):
        assert float(data.labels[row]) == pytest.approx(sum(data.truth[j] * data.inputs[row, j] for j in range(30)))
    assert float(data.labels.var()) == pytest.approx(1.0, rel=0.05)
    assert [len(data.rows(part)) for part in ("train_full", "val", "test")] == [20, 20_000, 7]


def test_matrix_completion():
    data = MatrixCompletion(size=12, rank=2, frac_train=0.5)
    assert data.inputs.tolist() == [[i, j] for i in range(12) for j in range(12)]
    assert torch.equal(data.labels.view(12, 12), data.truth)
    assert int(torch.linalg.matrix_rank(data.truth)) == 2
    assert float(data.labels.square().mean()) == pytest.approx(1.0)
    assert [len(data.rows(part)) for part in ("train_full", "val", "test")] == [72, 43, 29]
    assert torch.equal(data.split.test, MatrixCompletion(size=12, rank=2, frac_train=0.3).split.test)


def test_the_teacher_is_a_sum_of_n_neurons():
    data = TeacherStudent(n_features=1, n_teacher=3, n_train=5, n_val=4000, n_test=5)
    assert float(data.labels.square().mean()) == pytest.approx(1.0)
    order = data.inputs[:, 0].argsort()
    x, y = data.inputs[order, 0], data.labels[order]
    wide = (x[1:] - x[:-1]) > 1e-5
    slopes = ((y[1:] - y[:-1]) / (x[1:] - x[:-1]))[wide]
    kinks = int(((slopes[1:] - slopes[:-1]).abs() > 1e-4).sum())
    assert 1 <= kinks <= 2 * 3  # a piece that holds a kink has a slope of its own


def test_full_batches_hold_everything_at_every_step_and_shards_cover_them():
    data = SparseRegression(n_train=11)
    assert isinstance(data.batch_order(), FullBatch)
    assert type(SparseRegression(n_train=11, batch_size=4).batch_order()) is BatchOrder
    order = data.batch_order()
    assert all(order.rows(step).tolist() == list(range(11)) for step in (0, 1, FULL_BATCH_EPOCH + 3))
    shards = [data.batch_order(rank, 3).take(torch.arange(11), 5) for rank in range(3)]
    assert sorted(torch.cat([rows for rows, _ in shards]).tolist()) == list(range(11))
    assert sum(weight for _, weight in shards) == pytest.approx(3)


def test_the_loader_counts_full_batches_and_continues():
    data = SparseRegression(n_train=5)
    x, y = data.inputs[:5], data.labels[:5]
    loader = BatchLoader(x, y, data.batch_order())
    batches = iter(loader)
    assert all(torch.equal(next(batches).tokens, x) for _ in range(3))
    assert loader.state_dict() == {"step": 3}
    late = BatchLoader(x, y, data.batch_order())
    late.load_state_dict({"step": FULL_BATCH_EPOCH - 2})
    assert len(list(late)) == 2


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SparseRegression, {"n_nonzero": 101}, "data.n_nonzero = 101: must be from 1 to 100"),
        (SparseRegression, {"n_train": 0}, "data.n_train = 0: must be 1 or more"),
        (SparseRegression, {"n_val": -1}, "data.n_val = -1: must be 0 or more"),
        (SparseRegression, {"batch_size": 51}, "data.batch_size = 51"),
        (SparseRegression, {"split_seed": -1}, "data.split_seed = -1"),
        (MatrixCompletion, {"size": 2}, "data.size = 2: must be 3 or more"),
        (MatrixCompletion, {"rank": 21}, "data.rank = 21: must be from 1 to 20"),
        (MatrixCompletion, {"frac_train": 0.81}, "data.frac_train = 0.81: must be in"),
        (MatrixCompletion, {"frac_train": float("nan")}, "data.frac_train = nan: must be in"),
        (TeacherStudent, {"n_teacher": 0}, "data.n_teacher = 0: must be 1 or more"),
        (TeacherStudent, {"n_features": 0}, "data.n_features = 0: must be 1 or more"),
    ],
)
def test_bad_values_are_refused(kind, settings, message):
    with pytest.raises(ConfigError) as error:
        kind(**settings)
    assert message in str(error.value)
