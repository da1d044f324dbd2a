"""Words as labels of LIBSVM text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigsvm
from bigsvm.conversion.label_words import is_word, without_words
from bigsvm.conversion.libsvm import LibsvmReader
from bigsvm.errors import DataError, ParseError


def write(folder, text, name="text"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def converted(folder, text, **options):
    return bigsvm.convert(write(folder, text), folder / "store", **options)


TEXT = "spam 1:2 3:4\n# a note\n\nham 2:1 # ham\n  egg\t1:5\nspam qid:3 2:7\néclair 1:1\n"
LABELS = ["spam", "ham", "egg", "spam", "éclair"]


@pytest.mark.parametrize("shuffle", [True, False])
def test_words_become_class_names(shuffle, tmp_path):
    store = converted(tmp_path, TEXT, shuffle=shuffle)
    assert store.class_names == ("egg", "ham", "spam", "éclair")
    assert store.in_input_order(store.labels()).tolist() == LABELS
    in_order = store.in_input_order(
        store.rows.read(0, 5).toarray() if store.rows.is_sparse else store.rows.read(0, 5)
    )
    np.testing.assert_array_equal(in_order, [[2, 0, 4], [0, 1, 0], [5, 0, 0], [0, 7, 0], [1, 0, 0]])


def test_a_store_of_words_is_that_of_their_places(tmp_path):
    lines = [f"{'abc'[i % 3]} 1:{i} 2:{i % 7}" for i in range(300)]
    words = converted(tmp_path, "\n".join(lines))
    numbers = [f"{'abc'.index(line[0])}{line[1:]}" for line in lines]
    (tmp_path / "other").mkdir()
    expected = converted(tmp_path / "other", "\n".join(numbers))
    assert words.attributes.fingerprint == expected.attributes.fingerprint
    np.testing.assert_array_equal(words.label_numbers(), expected.labels())


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.text("abcdeé_", min_size=1, max_size=9), min_size=1, max_size=40),
    st.integers(20, 200),
    st.sampled_from([1, 3]),
)
def test_words_do_not_depend_on_chunks_and_threads(tmp_path_factory, labels, chunk_bytes, threads):
    text = "".join(f"{label} {i + 1}:{i}\n" for i, label in enumerate(labels))
    path = tmp_path_factory.getbasetemp() / "words.libsvm"
    path.write_text(text, "utf-8")
    reader = LibsvmReader([path], dtype=np.dtype(float), chunk_bytes=chunk_bytes, threads=threads)
    numbers = np.concatenate([rows.labels for rows in reader])
    names, places = reader.class_names.sorted()
    assert names == tuple(sorted(set(labels)))
    assert [names[int(places[int(number)])] for number in numbers] == labels


def test_words_of_several_files(tmp_path):
    first, second = write(tmp_path, "b 1:1\n", "first"), write(tmp_path, "a 1:2\nb 1:3\n", "second")
    store = bigsvm.convert([first, second], tmp_path / "s", shuffle=False)
    assert store.labels().tolist() == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a 1:2\n\n-1 1:3\n", "3:1", "label '-1' does not begin with a letter, as labels before"),
        ("a 1:2\nb 1:3\n3 1:3\nc 1:3", "3:1", "label '3' does not begin with a letter"),
        ("1 1:2\nspam 1:3\n", "2:1", "label 'spam' is not a number; write all labels as numbers"),
        ("a 1:2\n1:3 2:4\n", "2:1", "no label before '1:3'"),
        ("a 1:2\nlong_word oops 1:2\n", "2:11", "'oops' is not index:value"),
        ("a 1:2\nb,c 1:2\n", "2:1", "several labels, 'b,c'"),
        ("nan 1:2\n", "1:1", "label 'nan' is not finite"),
        ("a 1:2\nInfinity 1:2\n", "2:1", "label 'Infinity' is not finite"),
        ("0x1 1:2\n", "1:1", "label '0x1' is hexadecimal"),
        ("a 2:1 1:2\n", "1:7", "index of '1:2' is not larger"),
        ("width height class\n1 2 3\n", "1:7", "3 values separated by spaces"),
    ],
)
def test_lines_that_cannot_be_read_are_placed(text, place, message, tmp_path):
    with pytest.raises(ParseError, match=message) as caught:
        converted(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'text'}:{place}: ")


def test_words_that_are_not_utf_8_are_refused(tmp_path):
    for text in (b"caf\xe9 1:2\n", b"tea 1:2\ncaf\xe9 1:2\n", b"1 1:2\ncaf\xe9 1:2\n"):
        line = text.count(b"\n")
        with pytest.raises(ParseError, match=rf"text:{line}:1: label 'caf.' is not UTF-8"):
            converted(tmp_path, text)


def test_names_of_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="more than 65536 different words as labels"):
        converted(tmp_path, "".join(f"row{i} 1:1\n" for i in range(65537)))


@pytest.mark.parametrize("label", [b"a", b"_", b"B-52", b"n/a", "ö".encode(), b"e5", b"nans"])
def test_words(label):
    assert is_word(label)


@pytest.mark.parametrize(
    "label", [b"1", b"-a", b"+1", b"a:1", b"a,b", b"nan", b"INF", b"a\x00", b"{", b"<html>", b""]
)
def test_no_words(label):
    assert not is_word(label)


def test_zeros_keep_the_places_of_all_bytes():
    text = TEXT.encode()
    without, words = without_words(text)
    assert [words.distinct[place].decode() for place in words.of_rows] == LABELS
    assert len(without) == len(text)
    assert without.split()[:2] == [b"0000", b"1:2"]
