"""Hessian eigenvalues beside other libraries: our Lanczos, PyHessian, pytorch-hessian-eigenthings.

The peers go into a scratch directory, without what they would drag in or replace:

    pip install --no-deps --target DIR pyhessian hessian-eigenthings
    OMP_NUM_THREADS=1 PYTHONPATH=DIR python benchmarks/curvature_peers.py

A peer that cannot be imported is named as such and left out. The problem is that of ``curvature.py``, the
network written as an ordinary Embedding–Linear–ReLU–Linear module with the same weights. Costs are processor
seconds in units of one full-data gradient of that module, clocked before and after each measurement, medians over
the repeats; slow methods run once. A peer's cost holds everything from the finished module on (its graph or
operator, one per block); ours has the graph that all blocks share as ``entry``, and is measured a second time on
the package's own network, which gathers the first layer by token. Errors are against float64.
"""

import argparse
import importlib
import statistics
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from types import ModuleType
from unittest.mock import patch

import torch
from curvature import BLOCKS, TOLS, Outcome, Problem, clocked, measured, prepared, reference, verdict
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.numerics.hvp import HessianOperator
from grok_lightning.numerics.lanczos import lanczos

NAMES = {
    "embedding": ["embedding.weight"],
    "first_layer": ["first.weight", "first.bias"],
    "all": ["embedding.weight", "first.weight", "first.bias", "second.weight", "second.bias"],
}
Pair = tuple[Tensor, int]  # eigenvalues, descending, and the products they took


class Literal(nn.Module):
    """The network as one would write it by hand; parameters in the order of the package's own."""

    def __init__(self, problem: Problem, trained: frozenset[str] = frozenset(NAMES["all"])) -> None:
        super().__init__()
        self.embedding = nn.Embedding(99, 128)
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 97)
        for (name, mine), given in zip(self.named_parameters(), problem.net.parameters(), strict=True):
            mine.data.copy_(given.data)
            mine.requires_grad_(name in trained)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.second(F.relu(self.first(self.embedding(tokens).flatten(1))))


def literal_operator(problem: Problem) -> HessianOperator:
    blocks = {block: names for block, names in NAMES.items() if block != "all"}
    return HessianOperator(Literal(problem), problem.tokens, problem.labels, blocks)


Parts = Iterator[tuple[str, Callable[[], Pair]]]  # ``entry``, then the blocks, each with what is to be clocked
Sweep = Callable[[int], Parts]  # number of eigenvalues → parts


@dataclass
class Method:
    name: str
    sweep: Sweep
    ks: tuple[int, ...] = (1, 5)
    once: bool = False
    caps: dict[int, int] | None = None  # k → target for the cost of the three blocks together


def ours(make: Callable[[], HessianOperator], starts: dict[int, dict[str, Tensor]] | None = None) -> Sweep:
    def sweep(k: int) -> Parts:
        op = make()

        def solve(block: str) -> Pair:
            start = starts[k][block] if starts else None
            result = lanczos(op.matvec(block), op.sizes[block], k, tol=TOLS[k], start=start)
            return result.eigenvalues, result.n_matvec

        yield "entry", lambda: (torch.full((1,), op.__enter__().loss_value), 0)
        for block in BLOCKS:
            yield block, lambda b=block: solve(b)
        op.__exit__()

    return sweep


def blockwise(problem: Problem, solve: Callable[[Literal, str, int], Pair], trained: bool) -> Sweep:
    """A sweep with a module per block; ``trained``: only the parameters of the block have ``requires_grad``."""

    def sweep(k: int) -> Parts:
        for block in BLOCKS:
            net = Literal(problem, frozenset(NAMES[block if trained else "all"]))
            yield block, lambda b=block, n=net: solve(n, b, k)
            net.zero_grad()  # PyHessian leaves .grad with a graph that holds the parameters: a cycle

    return sweep


def pyhessian(problem: Problem, library: ModuleType) -> list[Method]:
    """It has no groups: what counts is ``requires_grad``. Its start vectors come from the global generator."""

    def solver(**settings: float) -> Sweep:
        def solve(net: Literal, block: str, k: int) -> Pair:
            torch.manual_seed(0)
            product = library.hessian_vector_product
            with patch.object(library, "hessian_vector_product", side_effect=product) as counted:
                h = library.hessian(net, nn.CrossEntropyLoss(), data=(problem.tokens, problem.labels), cuda=False)
                values, _ = h.eigenvalues(top_n=k, **settings)
            return torch.tensor(values, dtype=torch.float64).sort(descending=True).values, counted.call_count

        return blockwise(problem, solve, trained=True)

    return [
        Method("PyHessian, defaults", solver()),
        Method("PyHessian, tol 1e-6, maxIter 300", solver(maxIter=300, tol=1e-6), ks=(1,)),
        Method("PyHessian, tol 1e-5, maxIter 300", solver(maxIter=300, tol=1e-5), ks=(5,), once=True),
    ]


def eigenthings(problem: Problem, library: ModuleType) -> list[Method]:
    """Parameters by filter; the count is of Lanczos steps, one product each."""

    def solver(**settings: object) -> Sweep:
        def solve(net: Literal, block: str, k: int) -> Pair:
            batches, loss = [(problem.tokens, problem.labels)], library.supervised_loss(F.cross_entropy)
            chosen = library.match_names(*NAMES[block])
            op = library.HessianOperator(net, batches, loss, param_filter=chosen)
            result = library.lanczos(op, k=k, seed=0, **settings)
            return result.eigenvalues.double().sort(descending=True).values, result.iterations

        return blockwise(problem, solve, trained=False)

    name = "hessian-eigenthings"
    return [
        Method(f"{name}, defaults", solver()),
        Method(f"{name}, max_iter 30", solver(max_iter=30), ks=(1,)),
        Method(f"{name}, max_iter 60", solver(max_iter=60), ks=(5,), once=True),
        Method(f"{name}, max_iter 60, reorthogonalised", solver(max_iter=60, reorthogonalize=True), ks=(5,)),
    ]


PEERS = {"PyHessian": ("pyhessian.hessian", pyhessian), "hessian-eigenthings": ("hessian_eigenthings", eigenthings)}


def installed(problem: Problem) -> list[Method]:
    """The methods of the peers that can be imported; prints which ones cannot."""
    found: list[Method] = []
    for name, (module, methods) in PEERS.items():
        try:
            print(f"{name} {version(name)}")
            found += methods(problem, importlib.import_module(module))
        except ImportError as error:
            print(f"{name}: left out, not installed or not importable ({error})")
    return found


def product_costs(problem: Problem, gradient: Callable[[], object], rounds: int) -> None:
    """Print the price of our product, a median of ratios of neighbours in time."""
    print("\nHVP, literal gradients: literal module / package's net")
    with literal_operator(problem) as literal, problem.operator() as own:
        for block in BLOCKS:
            v = torch.randn(own.sizes[block], generator=torch.Generator().manual_seed(0))
            ratios: dict[str, list[float]] = {"literal": [], "own": []}
            for _ in range(rounds + 1):
                unit = clocked(gradient)
                ratios["literal"].append(clocked(lambda b=block, v=v: literal.hvp(b, v)) / unit)
                ratios["own"].append(clocked(lambda b=block, v=v: own.hvp(b, v)) / unit)
            target = 2.0 if block == "all" else 0.8
            prices = [statistics.median(values[1:]) for values in ratios.values()]  # the first round warms up
            shown = " / ".join(f"{price:.2f} ({verdict(price, target)})" for price in prices)
            print(f"  {block:<12} target ≤ {target}: {shown}")


Run = dict[str, tuple[Outcome, float]]  # part of a sweep → what it gave, and its cost in gradients


def run(method: Method, k: int, gradient: Callable[[], object]) -> Run:
    """One sweep, each part between the gradients that it is divided by."""
    parts: Run = {}
    for name, solve in method.sweep(k):
        units = [clocked(gradient) for _ in range(4)][1:]
        outcome = measured(solve)
        units += [clocked(gradient) for _ in range(4)][1:]
        parts[name] = outcome, outcome.seconds / statistics.median(units)
    return parts


def report(method: Method, k: int, runs: list[Run], truth: dict[str, Tensor]) -> None:
    """Print one row of the table."""
    cells, worst = [], 0.0
    for block in BLOCKS:
        outcome, exact = runs[0][block][0], truth[block][:k]
        error = float(((outcome.values - exact) / exact).abs().max())
        worst = max(worst, error)
        cells.append(f"{error:.1e}, {outcome.n_matvec}, {statistics.median(r[block][1] for r in runs):.1f}")
    total = statistics.median(sum(cost for _, cost in r.values()) for r in runs)
    target = ""
    if method.caps is not None:
        limit, cap = (1e-5 if k == 5 else 2.5e-4), method.caps[k]
        target = f"error ≤ {limit:g} {verdict(worst, limit)}, cost ≤ {cap} {verdict(total, cap)}"
    print(f"| {method.name} | {' | '.join(cells)} | {total:.1f} | {target} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=13, help="interleaved rounds for a product's price")
    parser.add_argument("--repeats", type=int, default=3, help="sweeps of every method (slow ones: 1)")
    parser.add_argument("--gap", type=int, default=10, help="steps since the probe a warm start comes from")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message=".*backward\\(\\) with create_graph=True.*")  # PyHessian's
    problem, starts = prepared(args.seed, args.gap)
    net = Literal(problem)
    with torch.no_grad():
        apart = float((net(problem.tokens) - problem.net(problem.tokens)).abs().max())
    print(f"{len(problem.labels)} pairs, torch {torch.__version__}; warm starts from {args.gap} steps earlier")
    print(f"logits of the literal module and the package's net differ by {apart:.1e}")

    def gradient() -> object:
        return torch.autograd.grad(F.cross_entropy(net(problem.tokens), problem.labels), list(net.parameters()))

    methods: list[Method] = []
    for form, make in ("literal module", lambda: literal_operator(problem)), ("package's net", problem.operator):
        methods.append(Method(f"lanczos, cold, {form}", ours(make), caps={5: 235, 1: 45}))
        methods.append(Method(f"lanczos, warm, {form}", ours(make, starts), caps={5: 235, 1: 20}))
    methods += installed(problem)
    truth = reference(problem, 5)
    product_costs(problem, gradient, args.rounds)
    for k in TOLS:
        chosen = [method for method in methods if k in method.ks]
        runs: list[list[Run]] = [[] for _ in chosen]
        for i in range(args.repeats):
            for method, done in zip(chosen, runs, strict=True):
                if i == 0 or not method.once:
                    done.append(run(method, k, gradient))
        print(f"\ntop-{k}: max relative error, HVPs, cost in gradients of the literal module\n")
        print(f"| method | {' | '.join(BLOCKS)} | sweep | target |\n|---|---|---|---|---|---|")
        for method, done in zip(chosen, runs, strict=True):
            report(method, k, done, truth)


if __name__ == "__main__":
    main()
