"""Train the runs of the gallery, draw them with ``report``, and write docs/gallery.md and its pictures.

    python docs/make_gallery.py [--runs DIR]

A run that is already complete under DIR is not trained again.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "figures" / "gallery"
WIDTH, COLORS = 900, 64
"""Pictures are that wide, with a palette: small files that still read well."""


@dataclass(frozen=True)
class Entry:
    """One section: runs, and which figures of their report it shows.

    Attributes:
        name: Of the experiment.
        title: Heading.
        text: What the source says, in a sentence; what came out is read from the runs.
        runs: Arguments of ``fit``, one tuple a run.
        figures: Names of the report's figures.
    """

    name: str
    title: str
    text: str
    runs: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...]


def paper(name: str, *flags: str) -> tuple[str, ...]:
    """Arguments of a run of ``configs/paper``."""
    return "--config", f"configs/paper/{name}.yaml", *flags


MULTIPLICATION = ("--data.task", "multiplication")
ENTRIES = (
    Entry(
        "default",
        "The default run: addition mod 97, c = 10",
        "One run with every default measurement, and gradients token by token.",
        (("--config", "configs/addition.yaml"),),
        ("accuracy", "lambda_max", "balance", "token_gradients", "token_probabilities"),
    ),
    Entry(
        "c3",
        "Adam against Adam-LR (C3, Fig. 6)",
        "The paper: c = 10 generalises about twice as soon as c = 1.",
        (paper("c3_adam_lr", "--model.c", "1"), paper("c3_adam_lr")),
        ("accuracy_overlay",),
    ),
    Entry(
        "c6",
        "Curvature of embedding and first layer (C6, Fig. 7)",
        "The paper: λ_max(E) far below λ_max(W) under Adam, closer under Adam-LR.",
        (paper("c6_curvature"), paper("c6_curvature", "--model.c", "10")),
        ("lambda_max_E", "lambda_max_W"),
    ),
    Entry(
        "c2",
        "With an embedding: addition and multiplication (C2, Fig. 2)",
        "The paper: both are memorised, and generalise long after.",
        (paper("c2_embedding"), paper("c2_embedding", *MULTIPLICATION)),
        ("accuracy_overlay",),
    ),
    Entry(
        "c1",
        "Without an embedding (C1, Fig. 2), the first 20 000 of 100 000 steps",
        "The paper: on addition training and test accuracy rise together; multiplication fails.",
        (
            paper("c1_no_embedding", "--trainer.max_steps", "20000"),
            paper("c1_no_embedding", "--trainer.max_steps", "20000", *MULTIPLICATION),
        ),
        ("accuracy_overlay", "accuracy_by_setting"),
    ),
    Entry(
        "c8",
        "Fourier spectra of E after training (C8, Fig. 11)",
        "The paper: peaks for addition and multiplication, diffuse for division.",
        (paper("c8_fourier"), paper("c8_fourier", *MULTIPLICATION), paper("c8_fourier", "--data.task", "division")),
        ("fourier",),
    ),
    Entry(
        "c7",
        "Singular values and ranks under Adam-LR (C7, Fig. 10), the first 3 000 of 10 000 steps",
        "The paper: the rank of EW falls in every set-up, that of E under Adam-LR.",
        (paper("c7_ranks", "--trainer.max_steps", "3000"),),
        ("ranks", "singular_values"),
    ),
    Entry(
        "j5",
        "E frozen from the start (J5), the first 3 000 of 10 000 steps",
        "Open: does the delay remain without training E?",
        (paper("j5_frozen_embedding", "--trainer.max_steps", "3000"),),
        ("accuracy",),
    ),
)


def train(entry: Entry, runs: Path) -> list[Path]:
    """Directories of the runs of an entry, trained if they are not complete."""
    paths = []
    for number, flags in enumerate(entry.runs):
        path = runs / f"gallery_{entry.name}" / str(number)
        if not (path / "summary.json").exists():
            where = ["--record.root", str(runs), "--record.experiment", path.parent.name, "--record.run_id", path.name]
            quiet = ["--config", "configs/logger/wandb_disabled.yaml", "--trainer.enable_progress_bar", "false"]
            command = [sys.executable, "-m", "grok_lightning", "fit", *flags, *quiet, *where]
            subprocess.run(command, cwd=ROOT, check=True)
        paths.append(path)
    return paths


def draw(entry: Entry, paths: list[Path]) -> list[tuple[str, str]]:
    """Write the pictures of an entry; (file, what it shows) of each."""
    from grok_lightning.report.make import make

    groups = [[path] for path in paths] if entry.figures == ("fourier",) else [paths]
    shown = []
    for number, group in enumerate(groups):
        with tempfile.TemporaryDirectory() as folder:
            made = make(group, Path(folder), formats=["png"])
            titles = {drawn.name: drawn.title for drawn in made.figures}
            for figure in entry.figures:
                file = f"{entry.name}_{figure}{number if len(groups) > 1 else ''}.png"
                shrink(Path(folder) / f"{figure}.png", PICTURES / file)
                shown.append((file, titles[figure]))
    return shown


def shrink(source: Path, target: Path) -> None:
    """A small picture of a figure."""
    with Image.open(source) as image:
        height = round(image.height * WIDTH / image.width)
        small = image.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        small.quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)


def facts(path: Path) -> str:
    """What a run's files say of it, in a line."""
    summary, source = (json.loads((path / name).read_text()) for name in ("summary.json", "provenance.json"))
    clocks = summary["clocks_steps"]
    words = [
        f"{name} {clocks[key] if clocks[key] is not None else 'not reached'}"
        for name, key in (("T_mem", "t_mem"), ("T_grok", "t_grok"))
    ]
    final = ", ".join(f"{part.removesuffix('_full')} {value:.3f}" for part, value in summary["final_acc"].items())
    return (
        f"{summary['steps']} steps: {', '.join(words)}; accuracies at the end: {final}. Seed "
        f"{source['seeds']['seed_everything']}, {source['started'][:10]}, torch {source['torch']}, {source['device']}."
    )


def section(entry: Entry, paths: list[Path], pictures: list[tuple[str, str]]) -> str:
    """Markdown of an entry."""
    commands = [shlex.join(["python", "-m", "grok_lightning", "fit", *flags]) for flags in entry.runs]
    lines = [f"## {entry.title}", "", entry.text, "", "```bash", *commands, "```", ""]
    lines += [f"{number}. {facts(path)}" for number, path in enumerate(paths, 1)]
    for file, title in pictures:
        lines += ["", f"![{entry.title}: {title}](figures/gallery/{file})"]
    return "\n".join(lines)


HEAD = """# Gallery

Figures of real runs, as `report` draws them. Every run is one seed on a CPU: they show what to look for, and settle
nothing; [Claims](claims.md) says what seeds and intervals say. This page and its pictures are written by
`python docs/make_gallery.py`, which trains what is not there yet."""


def main() -> None:
    """Make the gallery."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where the runs go, or are")
    runs = parser.parse_args().runs.resolve()
    PICTURES.mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    for entry in ENTRIES:
        paths = train(entry, runs)
        parts.append(section(entry, paths, draw(entry, paths)))
    (ROOT / "docs" / "gallery.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
