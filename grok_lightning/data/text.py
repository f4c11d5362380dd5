"""Text for a causal language model: packed sequences, cut from token numbers on disk when a batch needs them."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from grok_lightning.data.batches import BatchLoader, TableLoader
from grok_lightning.data.corpus import local_corpus, python_topics
from grok_lightning.data.splits import Split
from grok_lightning.data.table import TableDataModule
from grok_lightning.data.tokens import TokenFile, cache_folder, tokenise
from grok_lightning.errors import ConfigError, require

TOPICS = "topics"
"""Name of the text that ships with Python."""


class Windows:
    """Rows of T tokens, ``ids[s_r], …, ids[s_r + T − 1]``; only the rows asked for are read.

    Args:
        ids: Any integers, shape (n,).
        starts: s, int64, shape (rows,).
        length: T.
        device: Where the rows are wanted.
    """

    def __init__(self, ids: Tensor, starts: Tensor, length: int, device: torch.device | None = None) -> None:
        self.ids, self.starts, self.length = ids, starts, length
        self.device = ids.device
        self._wanted = device or ids.device

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """The rows: int64, shape (len(rows), T)."""
        places = self.starts[rows][:, None] + torch.arange(self.length)
        return self.ids[places].long().to(self._wanted)

    def on(self, device: torch.device) -> "Windows":
        """The same rows, handed out on a device."""
        return Windows(self.ids, self.starts, self.length, device)


class TextDataModule(TableDataModule):
    """Text, as rows of ``context_length`` tokens whose labels are the tokens after each.

    Rows lie side by side in the text and do not overlap; what is left at the end of a part, less than a row, is not
    used. Every token of a row but the first sees those before it in the same row only.

    Args:
        path: ``topics``, the reference texts that ship with Python (0.37 MB of English once repeated paragraphs are
            left out); a .txt, .tokens, .raw or .parquet file, cut 80 : 10 : 10 by position; or a folder in the layout
            of WikiText-103 with a file for each part.
        vocab_size: Tokens of the byte-level BPE that is trained on the training text alone.
        tokenizer: A ``tokenizer.json`` to use instead.
        context_length: Tokens per row.
        batch_size: Global batch size in rows, summed over all processes; full for the whole training set.
        order_seed: Seed of the order of batches alone.
        train_rows_evaluated: Rows of the training part, evenly spread, that evaluations go through; ``null`` for all.
        train_rows_measured: The same for gradients, curvature, kernels and health.
        cache_dir: Where tokenised text is kept; ``null`` for ``$GROK_LIGHTNING_CACHE``, or else the user's cache
            directory.
    """

    def __init__(
        self,
        path: str = TOPICS,
        vocab_size: int = 1024,
        tokenizer: str | None = None,
        context_length: int = 64,
        batch_size: int | Literal["full"] = 32,
        order_seed: int = 0,
        train_rows_evaluated: int | None = 256,
        train_rows_measured: int | None = 64,
        cache_dir: str | None = None,
    ) -> None:
        require(context_length >= 1, "data.context_length", context_length, "must be 1 or more (tokens)")
        budgets = {"train_rows_evaluated": train_rows_evaluated, "train_rows_measured": train_rows_measured}
        for name, rows in budgets.items():
            require(rows is None or rows >= 1, f"data.{name}", rows, "must be 1 or more (rows), or null")
        corpus = python_topics() if path == TOPICS else local_corpus(path)
        self.file = tokenise(corpus, vocab_size, tokenizer, cache_folder(cache_dir))
        self.context_length = context_length
        self._evaluated, self._measured = train_rows_evaluated, train_rows_measured
        starts, split = rows_of(self.file.counts, context_length)
        sizes = {"vocab_size": self.file.vocab_size, "context_length": context_length}
        inputs, labels = (Windows(self.file.ids, starts + shift, context_length) for shift in (0, 1))
        super().__init__(inputs, labels, split, sizes, batch_size, order_seed, 0, corpus.name)

    def measured_rows(self) -> Tensor:
        """Training rows that gradients, curvature, kernels and health are measured on."""
        return spread(self.split.train, self._measured)

    def evaluated_rows(self, part: str) -> Tensor:
        """Rows of a part that evaluations go through: all of val and test."""
        return spread(self.split.train, self._evaluated) if part == "train_full" else self.rows(part)

    def train_dataloader(self) -> BatchLoader:
        """This process's shards of the batches, cut when they are needed."""
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        order = self.batch_order(self.trainer.global_rank, self.trainer.world_size)
        assert isinstance(self.inputs, Windows)  # what __init__ put there; training rows are the first ones
        assert isinstance(self.labels, Windows)
        return BatchLoader(self.inputs.on(device), self.labels.on(device), order)

    def predict_dataloader(self) -> TableLoader:
        """The rows of the test part."""
        return self.test_dataloader()

    def prediction_lines(self, predictions: Tensor) -> list[str]:
        """The predictions of the test part as CSV: row, position in it, the token that follows, the one predicted."""
        labels, lines = self.labels[self.split.test], ["row,position,label,prediction"]
        for row, (true, found) in enumerate(zip(labels.tolist(), predictions.tolist(), strict=True)):
            lines += [f"{row},{at},{y},{z}" for at, (y, z) in enumerate(zip(true, found, strict=True))]
        return lines

    def token_counts(self) -> Tensor:
        """Occurrences of every token in the training part: int64, shape (V,)."""
        counts = torch.zeros(self.file.vocab_size, dtype=torch.int64)
        for block in torch.split(self.file.ids[: self.file.counts["train"]], 1 << 22):
            counts += torch.bincount(block.long(), minlength=len(counts))
        return counts

    def describe(self) -> dict[str, Any]:
        """What the run record keeps of the data."""
        found, file = super().describe(), self.file
        rows = {"evaluated_train": len(self.evaluated_rows("train_full")), "measured_train": len(self.measured_rows())}
        return found | {
            "n_rows": found["n_rows"] | rows,
            "n_tokens": file.counts,
            "text": file.text,
            "tokens_per_word": ratios(file, "words"),
            "tokens_per_byte": ratios(file, "bytes"),
            "corpus_sha256": file.corpus_sha256,
            "tokenizer_sha256": file.tokenizer_sha256,
            "tokens": str(file.folder),
        }


def ratios(file: TokenFile, unit: str) -> dict[str, float]:
    """Tokens per word or byte of every part: ``perplexity^(tokens/words)`` is the perplexity per word."""
    return {part: file.counts[part] / max(1, file.text[part][unit]) for part in file.counts}


def spread(rows: Tensor, n: int | None) -> Tensor:
    """N of the rows, evenly spread over them; all if n is ``None`` or there are no more."""
    if n is None or n >= len(rows):
        return rows
    return rows[torch.arange(n) * len(rows) // n]


def rows_of(counts: Mapping[str, int], context_length: int) -> tuple[Tensor, Split]:
    """Where the rows of a corpus begin, and which part each is of.

    A row of T tokens needs one more, the label of its last: a part of m tokens has ``⌊(m − 1)/T⌋`` rows.

    Args:
        counts: Part → m, parts in the order in which they are kept.
        context_length: T.

    Returns:
        int64, shape (rows,), and the split of these rows.

    Raises:
        ConfigError: If a part has no row.
    """
    starts, split, first = [], {}, 0
    for part, m in counts.items():
        rows = max(0, m - 1) // context_length
        if not rows:
            raise ConfigError(f"data.context_length = {context_length}: the {part} part has {m} tokens, no whole row")
        starts.append(first + context_length * torch.arange(rows))
        split[part] = rows
        first += m
    ends = torch.tensor([0, *split.values()]).cumsum(0).tolist()
    parts = [torch.arange(low, high) for low, high in pairwise(ends)]
    return torch.cat(starts), Split(*parts)
