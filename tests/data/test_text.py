"""Text: what becomes of every token, on files in the real formats."""

import json
import subprocess
import sys

import pytest
import torch
from text_files import texts, write_parquet, write_tokens

from grok_lightning.data.corpus import TextLines, local_corpus, python_topics
from grok_lightning.data.text import TextDataModule, Windows, rows_of, spread
from grok_lightning.data.tokens import tokenise
from grok_lightning.errors import ConfigError

PARTS = ("train", "val", "test")


def decoded(data, part):
    """The text of a part, from its tokens and the tokeniser beside them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(data.file.folder / "tokenizer.json"))
    at = sum(data.file.counts[before] for before in PARTS[: PARTS.index(part)])
    ids = data.file.ids[torch.arange(at, at + data.file.counts[part])].tolist()
    return tokenizer.decode(ids, skip_special_tokens=False)


def test_every_part_can_be_read_back(tmp_path):
    data = TextDataModule(str(write_tokens(tmp_path / "wiki")), vocab_size=300, cache_dir=str(tmp_path / "cache"))
    for part, name in zip(PARTS, ("train", "valid", "test"), strict=True):
        assert decoded(data, part) == "".join(texts()[name])
    facts = data.describe()
    assert facts["text"]["train"]["words"] == sum(len(line.split()) for line in texts()["train"])
    assert facts["text"]["train"]["lines"] == 120
    assert facts["n_tokens"] == data.file.counts
    assert facts["tokens_per_word"]["val"] == data.file.counts["val"] / facts["text"]["val"]["words"]


def test_labels_are_the_tokens_that_follow():
    data = TextDataModule(vocab_size=300, context_length=50)
    ids, at = data.file.ids.long(), 0
    for part in PARTS:
        m, rows = data.file.counts[part], data.rows({"train": "train_full"}.get(part, part))
        assert len(rows) == (m - 1) // 50
        inputs, labels = data.inputs[rows], data.labels[rows]
        assert inputs.dtype == labels.dtype == torch.int64
        assert torch.equal(inputs.flatten(), ids[at : at + 50 * len(rows)])
        assert torch.equal(labels.flatten(), ids[at + 1 : at + 1 + 50 * len(rows)])
        at += m
    assert at == len(ids)


def test_no_paragraph_of_the_embedded_text_is_in_two_parts():
    parts = [{p for p in "".join(lines).split("\n\n") if p.strip()} for lines in python_topics().parts().values()]
    assert [len(part) > 50 for part in parts] == [True] * 3
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    sizes = [sum(map(len, lines)) for lines in python_topics().parts().values()]
    assert [size / sum(sizes) for size in sizes] == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_parquet_and_tokens_give_the_same_words(tmp_path):
    tokens = local_corpus(str(write_tokens(tmp_path / "tokens")))
    parquet = local_corpus(str(write_parquet(tmp_path / "parquet")))
    for part in PARTS:
        words = [[line.split() for line in corpus.parts()[part]] for corpus in (tokens, parquet)]
        assert words[0] == words[1]
    assert tokens.digest() != parquet.digest()


@pytest.mark.parametrize("suffix", [".txt", ".parquet"])
def test_one_file_is_cut_by_position_without_a_gap(tmp_path, suffix):
    lines = [f"line {i} {'x' * (i % 37)}\n" for i in range(1000)]
    file = tmp_path / f"all{suffix}"
    if suffix == ".txt":
        file.write_text("".join(lines), encoding="utf-8")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": lines}), file, row_group_size=64)
    parts = [list(part) for part in local_corpus(str(file)).parts().values()]
    assert [line for part in parts for line in part] == lines
    assert [len(part) / 1000 for part in parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_cuts_of_a_file_never_lose_a_line(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(b"".join(b"%d\n" % i for i in range(40)))
    for cut in [k / 97 for k in range(98)]:
        found = [*TextLines(file, 0.0, cut), *TextLines(file, cut, 1.0)]
        assert found == [f"{i}\n" for i in range(40)], cut


def test_the_tokeniser_sees_the_training_text_alone(tmp_path):
    folder, cache = write_tokens(tmp_path / "a"), tmp_path / "cache"
    first = tokenise(local_corpus(str(folder)), 300, None, cache)
    held_out = folder / "wiki.valid.tokens"
    held_out.write_text("zyzzyva zyzzyva zyzzyva\n" * 999, encoding="utf-8")
    second = tokenise(local_corpus(str(folder)), 300, None, cache)
    assert second.tokenizer_sha256 == first.tokenizer_sha256
    assert second.corpus_sha256 != first.corpus_sha256
    training = folder / "wiki.train.tokens"
    training.write_text(training.read_text() + "zyzzyva zyzzyva zyzzyva\n" * 999, encoding="utf-8")
    assert tokenise(local_corpus(str(folder)), 300, None, cache).tokenizer_sha256 != first.tokenizer_sha256


def test_another_process_trains_the_same_tokeniser(tmp_path):
    code = (
        "import sys; from pathlib import Path; from grok_lightning.data.corpus import python_topics;"
        "from grok_lightning.data.tokens import tokenise;"
        "print(tokenise(python_topics(), 400, None, Path(sys.argv[1])).tokenizer_sha256)"
    )
    found = [
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], capture_output=True, text=True, check=True)
        for name in ("one", "two")
    ]
    assert found[0].stdout == found[1].stdout
    assert len(found[0].stdout) == 65


def test_what_is_kept_is_used_again_and_what_is_torn_made_anew(tmp_path, capsys):
    folder, cache = write_tokens(tmp_path / "a"), tmp_path / "cache"
    first = tokenise(local_corpus(str(folder)), 300, None, cache)
    whole = (first.folder / "ids.bin").read_bytes()
    assert "once, into" in capsys.readouterr().err
    stamp = (first.folder / "ids.bin").stat().st_mtime_ns
    again = tokenise(local_corpus(str(folder)), 300, None, cache)
    assert (again.folder / "ids.bin").stat().st_mtime_ns == stamp
    assert torch.equal(again.ids, first.ids)
    assert capsys.readouterr().err == ""
    del first, again
    (folders,) = cache.glob("tokens-*")
    (folders / "ids.bin").write_bytes(whole[:-7])
    mended = tokenise(local_corpus(str(folder)), 300, None, cache)
    assert (mended.folder / "ids.bin").read_bytes() == whole
    assert sorted(path.name.split("-")[0] for path in cache.iterdir()) == ["tokenizer", "tokens"]


def test_a_given_tokeniser_and_wide_numbers(tmp_path):
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"?": 0, "the": 5, "of": 70000}, "unk_token": "?"},
    }  # fmt: skip
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(content))
    folder = write_tokens(tmp_path / "a")
    data = TextDataModule(str(folder), tokenizer=str(file), cache_dir=str(tmp_path / "cache"), context_length=8)
    assert data.file.ids.dtype == torch.int32
    assert data.sizes["vocab_size"] == 70001
    expected = [{"the": 5, "of": 70000}.get(word, 0) for line in texts()["train"] for word in line.split()]
    assert data.inputs[data.split.train].flatten().tolist() == expected[: 8 * len(data.split.train)]
    counts = data.token_counts()
    assert counts[5] == expected.count(5)
    assert counts.sum() == len(expected)


def test_batches_are_a_function_of_seed_and_step():
    one, two = (TextDataModule(vocab_size=300, order_seed=seed) for seed in (0, 1))
    rows = one.batch_order().rows(3)
    assert torch.equal(rows, TextDataModule(vocab_size=300).batch_order().rows(3))
    assert not torch.equal(rows, two.batch_order().rows(3))
    order = one.batch_order()
    epoch = torch.cat([order.rows(step) for step in range(len(order))])
    assert sorted(epoch.tolist()) == one.split.train.tolist()


def test_budgets_of_rows():
    data = TextDataModule(vocab_size=300, train_rows_evaluated=10, train_rows_measured=3)
    assert data.measured_rows().tolist() == [0, len(data.split.train) // 3, 2 * len(data.split.train) // 3]
    assert len(data.evaluated_rows("train_full")) == 10
    assert torch.equal(data.evaluated_rows("val"), data.split.val)
    assert data.describe()["n_rows"]["evaluated_train"] == 10
    assert spread(torch.arange(5), None).tolist() == spread(torch.arange(5), 9).tolist() == [0, 1, 2, 3, 4]


def test_windows_of_uint16():
    ids = torch.arange(65530, 65536, dtype=torch.int32).to(torch.uint16)
    windows = Windows(ids, torch.tensor([0, 3]), 3)
    assert windows[torch.tensor([1, 0])].tolist() == [[65533, 65534, 65535], [65530, 65531, 65532]]


def test_rows_of_parts():
    starts, split = rows_of({"train": 10, "val": 4, "test": 5}, 3)
    assert starts.tolist() == [0, 3, 6, 10, 14]
    assert [split.train.tolist(), split.val.tolist(), split.test.tolist()] == [[0, 1, 2], [3], [4]]
    with pytest.raises(ConfigError, match="the val part has 4 tokens"):
        rows_of({"train": 10, "val": 4, "test": 5}, 4)


def test_bad_files_are_one_line(tmp_path):
    cache = str(tmp_path / "cache")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes.txt").write_bytes(b"ok\n\xff\xfe\n" * 99)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 but not really")
    (tmp_path / "bad.json").write_text("{}")
    both = write_tokens(tmp_path / "both")
    (both / "train.txt").write_text("x\n")
    for path, words in {
        "nowhere": "there is no such file or folder; expected wiki.train.tokens",
        "empty": "has no file for train and val and test; expected wiki.train.tokens",
        "bytes.txt": "is not UTF-8 text",
        "bad.parquet": "cannot be read as Parquet",
        "bad.json": "must end in one of .txt",
        "both": "which file is train: train.txt, wiki.train.tokens",
    }.items():
        with pytest.raises(ConfigError, match=words.replace(".", r"\.")) as caught:
            TextDataModule(str(tmp_path / path), cache_dir=cache)
        assert str(tmp_path / path) in str(caught.value)
        assert "\n" not in str(caught.value)
    for options, words in {
        ("vocab_size", 256): "more than the 256 bytes",
        ("context_length", 0): "must be 1 or more",
        ("train_rows_measured", 0): "must be 1 or more",
        ("tokenizer", "none.json"): "there is no such file",
        ("tokenizer", str(tmp_path / "bad.json")): "cannot be read as a tokenizer.json",
        ("batch_size", 10**6): "the size of the training set",
        ("context_length", 10**6): "no whole row",
    }.items():
        with pytest.raises(ConfigError, match=words):
            TextDataModule(**{options[0]: options[1]}, cache_dir=cache)
    with pytest.raises(ConfigError, match="cannot be written to"):
        TextDataModule(cache_dir=str(tmp_path / "bad.json"))
