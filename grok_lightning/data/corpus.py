"""Text as lines, in three parts: what ships with Python, one file, or a folder in the layout of WikiText-103."""

import hashlib
import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from grok_lightning.errors import ConfigError, require

PARTS = ("train", "val", "test")
"""Parts of a corpus, in order."""

CUTS = (0.0, 0.8, 0.9, 1.0)
"""Where a corpus that comes in one piece is cut, as shares of its length."""

SUFFIXES = (".txt", ".tokens", ".raw", ".parquet")
"""Endings of files that are read."""

EXPECTED = (
    "expected wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, or files named train…, validation… and test… "
    "that end in .txt, .tokens, .raw or .parquet (with a column text); nothing is downloaded"
)

_PART = re.compile(r"(?:^|[._-])(train|valid(?:ation)?|val|dev|test)(?=[._-])")
_BLOCK = 1 << 20


class Lines(Protocol):
    """A part of a corpus."""

    def __iter__(self) -> Iterator[str]:
        """Its lines in order, each with its line end."""

    def digest(self) -> str:
        """SHA-256 of what the lines are made from: equal digests are equal text."""


@dataclass(frozen=True)
class Corpus:
    """A text in three parts, none of which is read before it is iterated over.

    Attributes:
        name: Name of the task.
        train: The text that is trained on, and the only one that a tokeniser may see.
        val: Held-out text.
        test: Test text.
    """

    name: str
    train: Lines
    val: Lines
    test: Lines

    def parts(self) -> dict[str, Lines]:
        """The parts by name, in order."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def digest(self) -> str:
        """SHA-256 over the digests of the parts."""
        return hashlib.sha256("".join(part.digest() for part in self.parts().values()).encode()).hexdigest()


@dataclass(frozen=True)
class HeldLines:
    """Lines in memory."""

    lines: tuple[str, ...]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256("".join(self.lines).encode()).hexdigest()


@dataclass(frozen=True)
class TextLines:
    """The lines of a UTF-8 file that begin in the share ``[start, stop)`` of its bytes."""

    path: Path
    start: float = 0.0
    stop: float = 1.0

    def _ends(self) -> tuple[int, int]:
        size = self.path.stat().st_size
        return int(self.start * size), int(self.stop * size)

    def __iter__(self) -> Iterator[str]:
        low, high = self._ends()
        with self.path.open("rb") as file:
            if low:
                file.seek(low - 1)
                file.readline()  # of the line that begins before
            while file.tell() < high and (line := file.readline()):
                try:
                    yield line.decode()
                except UnicodeDecodeError:
                    raise ConfigError(f"data.path: {self.path} is not UTF-8 text") from None

    def digest(self) -> str:
        """SHA-256 of the whole file and of where it is cut."""
        return _cut_digest(self.path, self.start, self.stop)


@dataclass(frozen=True)
class ParquetLines:
    """The column ``text`` of a Parquet file, one line a row, rows in the share ``[start, stop)`` of all.

    Hugging Face keeps WikiText so, with the line end, and empty lines as empty text; line ends that lack are added.
    """

    path: Path
    start: float = 0.0
    stop: float = 1.0

    def __iter__(self) -> Iterator[str]:
        parquet = _pyarrow_parquet(self.path)
        try:
            file = parquet.ParquetFile(self.path)
        except Exception as error:  # pyarrow has classes of its own for each kind of damage
            raise ConfigError(f"data.path: {self.path} cannot be read as Parquet ({type(error).__name__})") from None
        with file:
            if "text" not in file.schema_arrow.names:
                names = ", ".join(file.schema_arrow.names)
                raise ConfigError(f"data.path: {self.path} has no column text (it has {names})")
            n, at = file.metadata.num_rows, 0
            low, high = int(self.start * n), int(self.stop * n)
            for batch in file.iter_batches(batch_size=4096, columns=["text"]):
                chosen = batch.slice(max(0, low - at), max(0, min(high, at + len(batch)) - max(low, at)))
                at += len(batch)
                for text in chosen.column(0).to_pylist() if len(chosen) else ():
                    yield text if text is not None and text.endswith("\n") else f"{text or ''}\n"

    def digest(self) -> str:
        """SHA-256 of the whole file and of where it is cut."""
        return _cut_digest(self.path, self.start, self.stop)


@dataclass(frozen=True)
class Joined:
    """Several files, one after the other."""

    members: tuple[TextLines | ParquetLines, ...]

    def __iter__(self) -> Iterator[str]:
        for member in self.members:
            yield from member

    def digest(self) -> str:
        """SHA-256 over the digests of the files."""
        return hashlib.sha256("".join(member.digest() for member in self.members).encode()).hexdigest()


def python_topics() -> Corpus:
    """The reference texts that ship with Python (``pydoc_data.topics``), 80 : 10 : 10 by position.

    Topics repeat each other's paragraphs, so every paragraph counts once, where it comes first (topics in alphabetical
    order): no paragraph of one part is in another. The cuts are between paragraphs. The text depends on the version of
    Python, which the run record names beside its digest.
    """
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    paragraphs = dict.fromkeys(
        paragraph.strip("\n") for name in sorted(topics) for paragraph in re.split(r"\n\s*\n", topics[name])
    )
    kept = [paragraph for paragraph in paragraphs if paragraph.strip()]
    total, at = sum(map(len, kept)), 0
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for paragraph in kept:
        part = PARTS[sum(at >= cut * total for cut in CUTS[1:3])]
        parts[part] += [*paragraph.splitlines(keepends=True)[:-1], paragraph.rsplit("\n", 1)[-1] + "\n", "\n"]
        at += len(paragraph)
    return Corpus("topics", *(HeldLines(tuple(parts[part])) for part in PARTS))


def local_corpus(path: str) -> Corpus:
    """A file, cut 80 : 10 : 10 by position, or a folder with a file (or several) for each part.

    Args:
        path: The file or folder.

    Raises:
        ConfigError: If it is missing, or not as expected; the message names what is.
    """
    top = Path(path)
    if not top.exists():
        raise ConfigError(f"data.path = {path!r}: there is no such file or folder; {EXPECTED}")
    if top.is_file():
        require(top.suffix in SUFFIXES, "data.path", path, f"must end in one of {', '.join(SUFFIXES)}")
        return Corpus(top.stem, *(_lines(top, *ends) for ends in pairwise(CUTS)))
    found = _by_part(top)
    missing = [part for part in PARTS if part not in found]
    if missing:
        raise ConfigError(f"data.path = {path!r}: has no file for {' and '.join(missing)}; {EXPECTED}")
    return Corpus(top.resolve().name, *(Joined(tuple(map(_lines, found[part]))) for part in PARTS))


def _by_part(folder: Path) -> dict[str, Sequence[Path]]:
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        match = _PART.search(file.name)
        if match is not None and file.suffix in SUFFIXES and file.is_file():
            part = {"train": "train", "test": "test"}.get(match[1], "val")
            found.setdefault(part, []).append(file)
    for part, files in found.items():
        kinds = sorted({file.suffix for file in files})
        several = ", ".join(file.name for file in files)
        if len(kinds) > 1 or (kinds != [".parquet"] and len(files) > 1):
            raise ConfigError(f"data.path = {str(folder)!r}: which file is {part}: {several}? Leave one")
    return {part: files for part, files in found.items()}


def _lines(path: Path, start: float = 0.0, stop: float = 1.0) -> TextLines | ParquetLines:
    if path.suffix == ".parquet":
        _pyarrow_parquet(path)
        return ParquetLines(path, start, stop)
    return TextLines(path, start, stop)


def _pyarrow_parquet(path: Path) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            f"data.path: {path} needs pyarrow, which comes with the extra: pip install 'grok_lightning[language]'"
        ) from None


def _cut_digest(path: Path, start: float, stop: float) -> str:
    return hashlib.sha256((_file_digest(path) + f"{start} {stop}").encode()).hexdigest()


def _file_digest(path: Path) -> str:
    sha = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                sha.update(block)
    except OSError as error:
        raise ConfigError(f"data.path: {path} cannot be read: {error.strerror or error}") from None
    return sha.hexdigest()
