"""Text as token numbers: the tokeniser, trained once, and the numbers, kept on disk and mapped into memory."""

import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grok_lightning.data.corpus import Corpus
from grok_lightning.errors import ConfigError, require

FORMAT = "1"
"""Changes whenever the same text would be kept as other numbers."""

LINES = 4096
"""Lines that are encoded at a time; bounds the memory."""

CACHE = "GROK_LIGHTNING_CACHE"
"""Environment variable that names the cache directory."""

BYTES = 256
"""Tokens that a byte-level tokeniser has before any merge."""


@dataclass(frozen=True)
class TokenFile:
    """A tokenised corpus.

    Attributes:
        ids: uint16 or int32, shape (n,), mapped from disk: the parts one after the other.
        counts: Part → number of tokens.
        text: Part → lines, words (runs of anything but white space) and UTF-8 bytes that they stand for.
        vocab_size: Number of tokens that the tokeniser knows.
        corpus_sha256: Digest of the corpus.
        tokenizer_sha256: Digest of the tokeniser.
        folder: Where it is kept, together with ``tokenizer.json``.
    """

    ids: Tensor
    counts: dict[str, int]
    text: dict[str, dict[str, int]]
    vocab_size: int
    corpus_sha256: str
    tokenizer_sha256: str
    folder: Path


def cache_folder(asked: str | None) -> Path:
    """Where tokenised text is kept: the option, ``$GROK_LIGHTNING_CACHE``, or the user's cache directory."""
    if asked or os.environ.get(CACHE):
        return Path(asked or os.environ[CACHE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grok_lightning"


def tokenise(corpus: Corpus, vocab_size: int, given: str | None, cache: Path) -> TokenFile:
    """Tokenise a corpus, or map what an earlier call has kept.

    What is kept is named by the digest of corpus and tokeniser, written under a temporary name and renamed when
    complete, so that several processes may do it at once and a killed one leaves nothing that is taken for whole.

    Args:
        corpus: The text.
        vocab_size: Tokens of a byte-level BPE that is trained on the training part alone; fewer where it has no more.
        given: A ``tokenizer.json`` to use instead; ``None`` to train one.
        cache: Directory of everything that is kept.

    Raises:
        ConfigError: If the tokeniser cannot be used or the directory not be written to.
    """
    digest = corpus.digest()
    tokenizer = _load(given) if given is not None else _trained(corpus, vocab_size, cache)
    content = tokenizer.to_str()
    sha = hashlib.sha256(content.encode()).hexdigest()
    folder = cache / f"tokens-{_key(digest, sha)}"
    if not _whole(folder):
        print(f"tokenising {corpus.name}, once, into {folder}", file=sys.stderr, flush=True)
        _keep(folder, lambda target: _write(target, corpus, tokenizer, content))
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    # Copy on write: torch asks for memory that may be written to, and nobody writes.
    ids = np.memmap(folder / "ids.bin", dtype=facts["dtype"], mode="c")
    return TokenFile(
        torch.from_numpy(ids), facts["counts"], facts["text"], facts["vocab_size"], digest, sha, folder
    )  # fmt: skip


def _tokenizers() -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise ConfigError(
            "data: text needs tokenizers, which comes with the extra: pip install 'grok_lightning[language]'"
        ) from None


def _load(path: str) -> Any:
    tokenizers = _tokenizers()
    require(Path(path).is_file(), "data.tokenizer", path, "there is no such file")
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the library raises Exception itself
        reason = " ".join(str(error).split())
        raise ConfigError(f"data.tokenizer = {path!r}: cannot be read as a tokenizer.json ({reason})") from None


def _trained(corpus: Corpus, vocab_size: int, cache: Path) -> Any:
    """A byte-level BPE of the training part; every text can be encoded with it, and decoded again."""
    tokenizers = _tokenizers()
    require(vocab_size > BYTES, "data.vocab_size", vocab_size, f"must be more than the {BYTES} bytes")
    folder = cache / f"tokenizer-{_key(corpus.train.digest(), str(vocab_size))}"
    file = folder / "tokenizer.json"
    if not file.is_file():
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(_batches(corpus.train), trainer)
        _keep(folder, lambda target: _write_text(target / "tokenizer.json", tokenizer.to_str()))
    return tokenizers.Tokenizer.from_file(str(file))


def _write(target: Path, corpus: Corpus, tokenizer: Any, content: str) -> None:
    """Encode line by line, so that the numbers do not depend on how much is encoded at a time."""
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    dtype = np.uint16 if size <= 2**16 else np.int32
    counts: dict[str, int] = {}
    text: dict[str, dict[str, int]] = {}
    with (target / "ids.bin").open("wb") as file:
        for name, lines in corpus.parts().items():
            counts[name], text[name] = 0, {"lines": 0, "words": 0, "bytes": 0}
            for batch in _batches(lines):
                encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
                ids = np.fromiter((i for line in encoded for i in line.ids), dtype=dtype)
                file.write(ids.tobytes())
                counts[name] += len(ids)
                text[name]["lines"] += len(batch)
                text[name]["words"] += sum(len(line.split()) for line in batch)
                text[name]["bytes"] += sum(len(line.encode()) for line in batch)
    facts = {"dtype": np.dtype(dtype).name, "counts": counts, "text": text, "vocab_size": size}
    _write_text(target / "tokenizer.json", content)
    _write_text(target / "facts.json", json.dumps(facts, indent=1))


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    ordered = iter(lines)
    while batch := list(islice(ordered, LINES)):
        yield batch


def _whole(folder: Path) -> bool:
    """Whether a tokenised corpus is there, and of the length that it says."""
    if not (folder / "facts.json").is_file():
        return False
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    expected = sum(facts["counts"].values()) * np.dtype(facts["dtype"]).itemsize
    return (folder / "ids.bin").is_file() and (folder / "ids.bin").stat().st_size == expected > 0


def _keep(folder: Path, write: Callable[[Path], None]) -> None:
    """Make a folder whole or not at all."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(
            f"data.cache_dir = {str(folder.parent)!r}: cannot be written to: {error.strerror or error}"
        ) from None
    try:
        write(target)
        try:
            target.rename(folder)
        except OSError:  # another process was first, or what is there is not whole
            shutil.rmtree(folder)
            target.rename(folder)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _write_text(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def _key(*parts: str) -> str:
    return hashlib.sha256(" ".join([FORMAT, *parts]).encode()).hexdigest()[:24]
