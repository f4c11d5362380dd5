"""Accuracy and cost of Hessian eigenvalues: our Lanczos, cold and warm, power iteration, scipy's eigsh.

    OMP_NUM_THREADS=1 python benchmarks/curvature.py

Embedding(99, 128) – Linear(512, 512) – ReLU – Linear(512, 97), addition mod 97, 30 % of the pairs for
training, 300 Adam steps (lr 0.01, batch 512, L2 1e-3). Errors are against a float64 operator and a
tighter tolerance. Costs are processor seconds (wall seconds on a loaded machine say little) in units of one
gradient of the full training set, of two kinds: that of the package's own network, whose first layer is
gathered by token, and that of the same network written as embedding and linear layer, which is what other
libraries are timed on.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding

from grok_lightning.data.splits import make_split
from grok_lightning.data.tasks import build_table, get_task
from grok_lightning.nets.mlp import EmbeddingMLPNet
from grok_lightning.numerics.eigen import EigenResult
from grok_lightning.numerics.hvp import HessianOperator
from grok_lightning.numerics.lanczos import lanczos
from grok_lightning.numerics.power import power_iteration

BLOCKS = ("embedding", "first_layer", "all")
TOLS = {5: 1e-3, 1: 3e-3}
"""Number of eigenvalues → relative residual at which our Lanczos stops."""


@dataclass
class Outcome:
    """One method on one block: values, products, processor seconds."""

    values: Tensor
    n_matvec: int
    seconds: float


class Problem:
    """The network after some steps, and what it takes to train it further."""

    def __init__(self, seed: int) -> None:
        table = build_table(get_task("addition"), 97)
        rows = make_split(table, "random", 0.3, seed).train
        self.tokens, self.labels = table.tokens[rows], table.labels[rows]
        torch.manual_seed(seed)
        self.net = EmbeddingMLPNet(table.vocab_size, table.n_classes, 128, 512)
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=0.01, weight_decay=1e-3)
        self.generator = torch.Generator().manual_seed(seed)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            rows = torch.randperm(len(self.labels), generator=self.generator)[:512]
            self.optimiser.zero_grad()
            cross_entropy(self.net(self.tokens[rows]), self.labels[rows]).backward()
            self.optimiser.step()

    def gathered_gradient(self) -> None:
        loss = cross_entropy(self.net(self.tokens), self.labels)
        torch.autograd.grad(loss, list(self.net.parameters()))

    def plain_gradient(self) -> None:
        x = self.net.first(embedding(self.tokens, self.net.E).flatten(1))
        loss = cross_entropy(self.net.stack(x), self.labels)
        torch.autograd.grad(loss, list(self.net.parameters()))

    def operator(self, dtype: torch.dtype = torch.float32) -> HessianOperator:
        return HessianOperator(self.net, self.tokens, self.labels, self.net.blocks(), dtype=dtype)


def prepared(seed: int, gap: int) -> tuple[Problem, dict[int, dict[str, Tensor]]]:
    """The problem after 300 steps; number of eigenvalues → block → warm start from ``gap`` steps earlier."""
    problem, starts = Problem(seed), {}
    problem.train(300 - gap)
    with problem.operator() as op:
        for k, tol in TOLS.items():
            found = {b: lanczos(op.matvec(b), op.sizes[b], k, tol=tol).next_start for b in BLOCKS}
            starts[k] = {block: start for block, start in found.items() if start is not None}
    problem.train(gap)
    return problem, starts


def clocked(f: Callable[[], object]) -> float:
    start = time.process_time()
    f()
    return time.process_time() - start


def hvp_costs(problem: Problem, op: HessianOperator, rounds: int) -> None:
    """Print the price of a product: medians of ratios of neighbours in time."""
    generator = torch.Generator().manual_seed(0)
    vectors = {block: torch.randn(op.sizes[block], generator=generator) for block in BLOCKS}
    seconds: dict[str, list[float]] = {name: [] for name in ("gathered", "plain", *BLOCKS)}
    for _ in range(rounds + 1):
        seconds["gathered"].append(clocked(problem.gathered_gradient))
        seconds["plain"].append(clocked(problem.plain_gradient))
        for block in BLOCKS:
            seconds[block].append(clocked(lambda b=block: op.hvp(b, vectors[b])))
    seconds = {name: values[1:] for name, values in seconds.items()}  # the first round warms up
    medians = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    print("ms, processor time:", ", ".join(f"{name} {value:.1f}" for name, value in medians.items()))
    for block in BLOCKS:
        target = 2.0 if block == "all" else 0.8
        line = f"  HVP {block:<12} target ≤ {target}:"
        for unit in ("gathered", "plain"):
            ratio = statistics.median(p / g for p, g in zip(seconds[block], seconds[unit], strict=True))
            line += f"  {ratio:.2f} {unit} gradients ({verdict(ratio, target)})"
        print(line)


def verdict(value: float, target: float) -> str:
    return "met" if value <= target else "MISSED"


def measured(solve: Callable[[], tuple[Tensor, int]]) -> Outcome:
    start = time.process_time()
    values, n_matvec = solve()
    return Outcome(values, n_matvec, time.process_time() - start)


def with_scipy(op: HessianOperator, block: str, k: int, tol: float) -> tuple[Tensor, int]:
    n, before = op.sizes[block], op.n_hvp[block]

    def product(v: object) -> object:
        return op.hvp(block, torch.as_tensor(v).ravel()).numpy()

    start = torch.randn(n, generator=torch.Generator().manual_seed(1)).numpy()
    A = LinearOperator((n, n), matvec=product, dtype="float32")
    values = eigsh(A, k=k, which="LA", tol=tol, v0=start, return_eigenvectors=False)
    return torch.as_tensor(values.copy()).double().sort(descending=True).values, op.n_hvp[block] - before


def ours(result: EigenResult) -> tuple[Tensor, int]:
    return result.eigenvalues, result.n_matvec


def reference(problem: Problem, k: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    with problem.operator(torch.float64) as op:
        for block in BLOCKS:
            r = lanczos(op.matvec(block), op.sizes[block], k, tol=1e-7, dtype=torch.float64, seed=99)
            found[block] = r.eigenvalues
            values = " ".join(f"{x:.6f}" for x in r.eigenvalues)
            sure = "converged" if bool(r.converged.all()) else "NOT CONVERGED"
            print(f"  reference {block:<12} {values}  λ_min {r.lambda_min:+.4f}  {sure}")
    return found


Method = Callable[[HessianOperator, str, int], tuple[Tensor, int]]


def methods(k: int, starts: dict[str, Tensor], tol: float, power: bool) -> dict[str, Method]:
    def cold(op: HessianOperator, block: str, k: int) -> tuple[Tensor, int]:
        return ours(lanczos(op.matvec(block), op.sizes[block], k, tol=tol))

    def warm(op: HessianOperator, block: str, k: int) -> tuple[Tensor, int]:
        return ours(lanczos(op.matvec(block), op.sizes[block], k, tol=tol, start=starts[block]))

    def hundred(op: HessianOperator, block: str, k: int) -> tuple[Tensor, int]:
        return ours(power_iteration(op.matvec(block), op.sizes[block], k))

    found: dict[str, Method] = {f"lanczos {tol:g}, cold": cold, f"lanczos {tol:g}, warm": warm}
    found["eigsh 1e-4, our HVP"] = lambda op, block, k: with_scipy(op, block, k, 1e-4)
    return found | {"power, 100 iterations": hundred} if power else found


Run = dict[str, Outcome]
"""Block (and ``entry``: graph and calibration) → what one run of a method gave and cost."""


def run_all(problem: Problem, k: int, found: dict[str, Method], units: dict[str, list[float]]) -> dict[str, Run]:
    """Every method once, with an operator of its own; gradients are clocked in between."""
    runs: dict[str, Run] = {}
    for name, method in found.items():
        for unit, gradient in (("gathered", problem.gathered_gradient), ("plain", problem.plain_gradient)):
            units[unit].append(statistics.median(clocked(gradient) for _ in range(5)))
        start = time.process_time()
        with problem.operator() as op:
            entry = Outcome(torch.zeros(0), 0, time.process_time() - start)
            runs[name] = {"entry": entry}
            for block in BLOCKS:
                runs[name][block] = measured(lambda b=block, m=method: m(op, b, k))
    return runs


def report(k: int, repeats: list[dict[str, Run]], units: dict[str, float], truth: dict[str, Tensor]) -> None:
    """Print medians over the repeats."""
    print(f"\ntop-{k}: max relative error, products, cost in gathered / plain gradients")
    for name in repeats[0]:
        runs = [repeat[name] for repeat in repeats if name in repeat]
        seconds = {part: statistics.median(run[part].seconds for run in runs) for part in runs[0]}
        worst = 0.0
        print(f"  {name}")
        for block in BLOCKS:
            outcome = runs[0][block]
            error = float(((outcome.values - truth[block][:k]) / truth[block][:k]).abs().max())
            worst = max(worst, error)
            cost = " / ".join(f"{seconds[block] / unit:6.1f}" for unit in units.values())
            print(f"    {block:<12} {error:.1e}  {outcome.n_matvec:>4}  {cost}")
        total = {unit: sum(seconds.values()) / value for unit, value in units.items()}
        print(f"    {'sweep, with entry':<24}  {' / '.join(f'{x:6.1f}' for x in total.values())}")
        if name.startswith("lanczos"):
            limit, cap = (1e-5, 235) if k == 5 else (2.5e-4, 20 if "warm" in name else 45)
            marks = ", ".join(f"{unit} {verdict(cost, cap)}" for unit, cost in total.items())
            print(f"    targets: error ≤ {limit:g} {verdict(worst, limit)}; cost ≤ {cap}: {marks}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=13, help="interleaved rounds for a product's price")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every method (power iteration: 1)")
    parser.add_argument("--gap", type=int, default=10, help="steps since the probe a warm start comes from")
    parser.add_argument("--fast", action="store_true", help="leave power iteration out")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    problem, starts = prepared(args.seed, args.gap)
    print(f"{len(problem.labels)} pairs, torch {torch.__version__}, {args.threads} thread(s)")
    truth = reference(problem, 5)
    with problem.operator() as op:
        print(f"loss {op.loss_value:.4f}; parameters { ({b: op.sizes[b] for b in BLOCKS}) }")
        hvp_costs(problem, op, args.rounds)
    print(f"warm starts come from {args.gap} steps earlier")
    for k, tol in TOLS.items():
        units: dict[str, list[float]] = {"gathered": [], "plain": []}
        repeats = []
        for i in range(args.repeats):
            found = methods(k, starts[k], tol, power=i == 0 and not args.fast)
            repeats.append(run_all(problem, k, found, units))
        report(k, repeats, {unit: statistics.median(values) for unit, values in units.items()}, truth)


if __name__ == "__main__":
    main()
