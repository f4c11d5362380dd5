"""Small texts in the file formats of WikiText-103."""

import random

WORDS = ["the", "of", "and", "in", "to", "a", "was", "as", "on", "for", "with", "by", "that", "from", "at", "his", "it"]
WORDS += ["is", "<unk>", "@-@", ",", ".", "=", "Valkyria", "Chronicles"]
PARTS = {"train": 120, "valid": 40, "test": 40}


def article(seed, lines):
    """Lines of WikiText: a title, and paragraphs between empty lines."""
    draw = random.Random(seed)
    found = [" \n", " = Title = \n", " \n"]
    while len(found) < lines:
        found += [" " + " ".join(draw.choices(WORDS, range(len(WORDS), 0, -1), k=30)) + " \n", " \n"]
    return found[:lines]


def texts(scale=1):
    return {part: article(part, lines * scale) for part, lines in PARTS.items()}


def write_tokens(folder, scale=1):
    """``wiki.train.tokens`` …, as the official archive has them."""
    folder.mkdir(parents=True)
    for part, lines in texts(scale).items():
        (folder / f"wiki.{part}.tokens").write_text("".join(lines), encoding="utf-8")
    return folder


def write_parquet(folder, shards=2):
    """``train-00000-of-00002.parquet`` …, as Hugging Face has wikitext-103-raw-v1: empty lines are empty text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for part, lines in texts().items():
        name, rows = {"valid": "validation"}.get(part, part), [line if line.strip() else "" for line in lines]
        n = shards if part == "train" else 1
        for k in range(n):
            chosen = rows[len(rows) * k // n : len(rows) * (k + 1) // n]
            pq.write_table(pa.table({"text": chosen}), folder / f"{name}-{k:05d}-of-{n:05d}.parquet")
    return folder
