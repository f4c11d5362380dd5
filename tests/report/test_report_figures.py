"""What the figures show equals what is on record."""

import matplotlib.colors
import numpy as np
import pytest
from report.recorded_runs import STEPS, P, probabilities, write

from grok_lightning.report import one
from grok_lightning.report.drawn import Drawn, NotRecorded
from grok_lightning.report.reading import read_subject
from grok_lightning.report.style import house_style, printable, step_axis


def drawn(path):
    with house_style():
        outcomes = one.outcomes(read_subject(path))
    return {o.name: o for o in outcomes if isinstance(o, Drawn)}, [o for o in outcomes if isinstance(o, NotRecorded)]


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    found, missing = drawn(write(tmp_path_factory.mktemp("full") / "run"))
    assert missing == []
    return found


def lines(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_accuracy_and_loss_are_the_metrics_and_the_clocks_are_marked(figures):
    left, right = figures["accuracy"].figure.axes
    found = lines(left)
    assert found["training pairs"] == (STEPS, [0.1, 0.5, 1.0, 1.0])
    assert found["held-out pairs"] == (STEPS, [0.1, 0.1, 0.2, 0.99])
    assert found["test pairs"] == (STEPS, [0.1, 0.1, 0.3, 0.98])
    assert found["_T_mem"][0] == [100, 100]
    assert found["_T_grok"][0] == [1000, 1000]
    assert {text.get_text() for text in left.texts} == {"T_mem", "T_grok"}
    assert lines(right)["training pairs"] == (STEPS, [2.0, 1.0, 2.0 / 3, 0.5])


def test_step_0_is_inside_a_logarithmic_axis_left_of_the_first_other_step(figures):
    axes = figures["accuracy"].figure.axes[0]
    at = [axes.transData.transform((step, 0))[0] for step in STEPS]
    left = axes.transAxes.transform((0, 0))[0]
    assert left < at[0] < at[1]
    assert at[2] - at[1] == pytest.approx(at[3] - at[2])  # a decade is as wide as the next
    assert axes.get_xticklabels()[0].get_text() == "0"


def test_curvature_rings_what_is_not_converged_and_shows_residuals(figures):
    above, below = figures["lambda_max"].figure.axes
    found = lines(above)
    assert found["E"] == (STEPS, pytest.approx([0.1, 0.2, 0.3, 0.4]))
    assert found["W"] == (STEPS, [3.0, 2.5, 2.0, 1.5])
    assert found["W: not converged"] == ([100], [2.0])
    assert "E: not converged" not in found
    assert lines(below)["W"] == (STEPS, [0.5] * 4)
    assert "1 values are not converged" in figures["lambda_max"].notes


def test_spectra_are_the_recorded_singular_values(figures):
    axes = figures["singular_values"].figure.axes[0]
    found = lines(axes)
    assert axes.get_title(loc="left") == "E"
    assert found["step 0"] == ([1, 2, 3], [4.0, 2.0, 1.0])
    assert found["step 1 000"] == ([1, 2, 3], [4.0, 2.0, 0.25])


def test_every_rank_notion_has_a_panel_and_says_why_there_is_no_t_compress(figures):
    panels = figures["ranks"].figure.axes
    assert [axes.get_title(loc="left") for axes in panels[:5]] == [
        "erank", "erank_sq", "stable_rank", "participation_ratio", "numerical_rank",
    ]  # fmt: skip
    assert lines(panels[1])["E"] == (STEPS, pytest.approx([2.5, 2.4, 2.3, 2.2]))
    notes = [note for note in figures["ranks"].notes if note.startswith("spectrum/E/erank_sq")]
    assert len(notes) == 1
    assert "few_floor_points" in notes[0]


def test_t_compress_is_starred_where_the_clock_finds_it(tmp_path):
    import json

    path = write(tmp_path / "run", keep=lambda key: not key.startswith("spectrum/"))
    steps = list(range(0, 4001, 50))
    # 50 until T_grok = 1000, then down by 2 every 50 steps to 10 at step 2000: within a tenth of 40 (14) at step 1900
    ranks = [50.0 if step <= 1000 else max(10.0, 50.0 - 2 * (step - 1000) / 50) for step in steps]
    with (path / "metrics.jsonl").open("a") as file:
        for step, rank in zip(steps, ranks, strict=True):
            file.write(json.dumps({"step": step, "spectrum/E/erank_sq": rank}) + "\n")
            if step > 1000:
                file.write(json.dumps({"step": step, "val/acc": 1.0}) + "\n")
    axes = drawn(path)[0]["ranks"].figure.axes[1]
    stars = [line for line in axes.lines if line.get_marker() == "*"]
    assert [(list(star.get_xdata()), list(star.get_ydata())) for star in stars] == [([1900], [14.0])]


def test_balance_shows_predicted_and_used_c(figures):
    found = lines(figures["balance"].figure.axes[0])
    assert found["predicted c (eq. 24)"] == (STEPS[1:], pytest.approx([5 / 2 / 0.9, 5 / 3 / 0.9, 5 / 4 / 0.9]))
    assert found["‖ΔE‖ / ‖ΔW‖"] == (STEPS[1:], [2.0] * 3)
    assert found["c used: 10"][1] == [10, 10]


def test_token_probabilities_come_from_provenance(figures):
    panels = figures["token_probabilities"].figure.axes
    assert len(panels) == 4
    for axes in panels:
        assert [bar.get_height() for bar in axes.patches] == pytest.approx(probabilities())
        assert list(axes.lines[0].get_ydata()) == pytest.approx([1 / P] * 2)
    assert figures["token_probabilities"].notes == ("not recorded: held-out pairs",)


def test_the_heat_map_has_tokens_by_steps_and_white_for_exactly_zero(figures):
    gradient = figures["token_gradients"].figure.axes[0]
    image = gradient.images[0]
    table = np.asarray(image.get_array())
    assert table.shape == (P + 2, 3)
    assert table[:-1, 2] == pytest.approx([0.03 * (j + 1) for j in range(P + 1)])
    assert [tick.get_text() for tick in gradient.get_xticklabels()] == ["10", "100", "1\u2009000"]
    shown = image.to_rgba(table)
    assert matplotlib.colors.to_hex(shown[-1, 0]) == "#ffffff"
    assert matplotlib.colors.to_hex(shown[0, 0]) != "#ffffff"


def test_fourier_before_and_after(figures):
    before, after = figures["fourier"].figure.axes
    assert [bar.get_height() for bar in before.patches] == [1.0, 2.0, 0.0, 0.5]
    assert [bar.get_height() for bar in after.patches] == [1.0, 2.0, 9.0, 0.5]
    assert "step 1\u2009000" in after.get_title(loc="left")


def test_tangent_kernel_health_and_two_phases(figures):
    assert lines(figures["tangent_kernel"].figure.axes[0])["E"] == (STEPS, pytest.approx([0, 0.2, 0.4, 0.6]))
    assert lines(figures["health"].figure.axes[1])["logits"] == (STEPS, [1.0, 2.0, 3.0, 4.0])
    norms = lines(figures["two_phase"].figure.axes[0])
    assert norms["λ‖w‖"] == (STEPS, pytest.approx([0.004] * 4))
    assert norms["_t_GF"][0] == [100, 100]  # 0.009 ≤ 0.01 · 1
    assert norms["_t_WD"][0] == [1000, 1000]  # 0.001 ≤ 0.004


@pytest.mark.parametrize(
    ("group", "title"),
    [
        ("hessian", "Largest eigenvalue of the Hessian by block"),
        ("ntk", "Drift of the tangent kernel"),
        ("two_phase", "Gradient norms against weight decay"),
        ("health", "Numerical health"),
        ("balance", "Balance between E and W"),
        ("spectrum", "Ranks and T_compress"),
        ("fourier", "Fourier spectrum of E before and after training"),
    ],
)
def test_what_was_not_recorded_is_named_and_not_drawn(tmp_path, group, title):
    found, missing = drawn(write(tmp_path / "run", keep=lambda key: not key.startswith(f"{group}/")))
    assert title in [item.title for item in missing]
    assert title not in [item.title for item in found.values()]


def test_a_part_that_was_not_recorded_is_no_curve_and_is_named(tmp_path):
    absent = ("val/acc", "hessian/W/lambda_max", "health/softmax_collapse")
    found, _ = drawn(write(tmp_path / "run", keep=lambda key: key not in absent))
    assert "held-out pairs" not in lines(found["accuracy"].figure.axes[0])
    assert "W" not in lines(found["lambda_max"].figure.axes[0])
    assert found["health"].figure.axes[0].lines[:] == []
    for name, key in zip(("accuracy", "lambda_max", "health"), absent, strict=True):
        assert any(note.startswith("not recorded") and key in note for note in found[name].notes), name


def test_not_a_number_leaves_a_gap_and_is_counted(tmp_path):
    path = write(tmp_path / "run")
    text = (path / "metrics.jsonl").read_text().replace('"val/loss": 2.0', '"val/loss": NaN', 1)
    (path / "metrics.jsonl").write_text(text)
    found, _ = drawn(path)
    assert np.isnan(lines(found["accuracy"].figure.axes[1])["held-out pairs"][1]).tolist() == [
        True,
        False,
        False,
        False,
    ]
    assert "val/loss: 1 of 4 values are not finite and leave gaps" in found["accuracy"].notes


def test_curves_differ_in_dashes_and_markers_not_in_colour_alone(figures):
    for name in ("accuracy", "lambda_max", "balance"):
        curves = [line for line in figures[name].figure.axes[0].lines if line.get_marker() not in ("None", "", "o ")]
        looks = [(line.get_linestyle(), line.get_marker(), str(line._dash_pattern)) for line in curves]
        assert len(set(looks)) == len(looks) > 1, name


def test_text_from_files_is_made_fit_for_a_figure():
    assert printable("a\nb") == "a b"
    assert not printable("_hidden").startswith("_")
    assert printable("c $\\frac$") == "c $\\frac$"
    assert printable("\u4e2dx") == "\ufffdx"
    assert len(printable("x" * 500)) == 48


def test_a_single_step_has_an_axis():
    from matplotlib.figure import Figure

    with house_style():
        axes = Figure().subplots()
        axes.plot([0], [1.0], "o")
        step_axis(axes, [0])
        low, high = axes.get_xlim()
        assert low < 0 < high
