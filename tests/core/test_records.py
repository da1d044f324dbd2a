"""Records of rows against lists of words, by compiled code and by NumPy."""

import numpy as np
import pytest

from bigsvm.core import records as compiled
from bigsvm.data import few_records

HEAD = 3


@pytest.fixture(params=[compiled, few_records], ids=["compiled", "few"])
def records(request):
    return request.param


class Rows:
    """Random rows; `lists` has the record of each as a list of words."""

    def __init__(self, *, sparse, value_words, n=40, seed=0):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, 6, n) if sparse else np.full(n, 4)
        self.indptr = np.concatenate(([0], np.cumsum(lengths)))
        self.columns = rng.integers(0, 99, self.indptr[-1] if sparse else 0).astype(np.int32)
        self.values = rng.integers(-99, 99, self.indptr[-1] * value_words).astype(np.int32)
        self.head = rng.integers(0, 99, (n, HEAD)).astype(np.int32)
        self.value_words, self.entry_words = value_words, value_words + sparse
        self.lists = []
        for i, length in enumerate(lengths):
            start, stop = self.indptr[i], self.indptr[i + 1]
            values = self.values[start * value_words : stop * value_words].tolist()
            columns = self.columns[start:stop].tolist() if sparse else []
            self.lists.append([*self.head[i, :-1].tolist(), int(length), *columns, *values])

    def scattered(self, records, bucket, n_buckets):
        edges = np.full(n_buckets + 1, -1)
        out = np.full(sum(map(len, self.lists)), -1, np.int32)
        records.scatter(
            bucket, self.head, self.indptr, self.columns, self.values, self.value_words, edges, out
        )
        return edges, out

    def piece(self):
        words = [word for record in self.lists for word in record]
        return np.array([len(self.lists), 0, 0, 0, *words], np.int32)


@pytest.fixture(params=[(True, 1), (True, 2), (False, 1), (False, 2)])
def rows(request):
    sparse, value_words = request.param
    return Rows(sparse=sparse, value_words=value_words)


def test_scatter_writes_bucket_by_bucket(records, rows):
    bucket = np.random.default_rng(1).integers(0, 5, len(rows.lists))
    bucket[bucket == 3] = 4
    edges, out = rows.scattered(records, bucket, 5)
    for b in range(5):
        expected = [w for i in np.flatnonzero(bucket == b) for w in rows.lists[i]]
        assert out[edges[b] : edges[b + 1]].tolist() == expected
    assert (edges[0], edges[-1]) == (0, len(out))


def test_find_goes_through_all_pieces(records, rows):
    piece = rows.piece()
    words = np.concatenate((piece, np.zeros(records.PIECE_HEAD, np.int32), piece))
    places = np.empty(2 * len(rows.lists), np.int64)
    numbers = np.empty((len(places), 2), np.int32)
    records.find(words, HEAD, rows.entry_words, places, numbers)
    for place, number, record in zip(places, numbers, 2 * rows.lists, strict=True):
        assert words[place : place + len(record)].tolist() == record
        assert number.tolist() == record[:2]


@pytest.mark.parametrize("first_column", [0, 1])
def test_gather_undoes_scatter(records, rows, first_column):
    words = rows.piece()
    places = np.empty(len(rows.lists), np.int64)
    records.find(words, HEAD, rows.entry_words, places, np.empty((len(places), 2), np.int32))
    order = np.random.default_rng(2).permutation(len(places))[:17]
    lengths = np.diff(rows.indptr)[order]
    entries = [k for i in order for k in range(rows.indptr[i], rows.indptr[i + 1])]
    head = np.empty((17, HEAD), np.int32)
    indptr = np.empty(18, np.int64)
    columns = np.empty(lengths.sum() if len(rows.columns) else 0, np.int32)
    values = np.empty(lengths.sum() * rows.value_words, np.int32)
    records.gather(
        words, places[order], first_column, rows.value_words, head, indptr, columns, values
    )
    assert indptr.tolist() == [0, *np.cumsum(lengths)]
    assert head.tolist() == [rows.lists[i][:HEAD] for i in order]
    if len(rows.columns):
        assert columns.tolist() == (rows.columns[entries] - first_column).tolist()
    expected = rows.values.reshape(-1, rows.value_words)[entries]
    assert values.tolist() == expected.ravel().tolist()


def test_sparse_rows_without_entries(records):
    n = 3
    head = np.zeros((n, HEAD), np.int32)
    nothing = np.empty(0, np.int32)
    edges, out = np.empty(2, np.int64), np.empty(n * HEAD, np.int32)
    indptr = np.zeros(n + 1, np.int64)
    records.scatter(np.zeros(n, np.int64), head, indptr, nothing, nothing, 1, edges, out)
    assert edges.tolist() == [0, n * HEAD]
    assert not out.any()


def test_there_is_one_head_of_pieces():
    assert compiled.PIECE_HEAD == few_records.PIECE_HEAD
