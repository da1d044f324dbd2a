"""Tables with words and missing values, beside pandas.get_dummies and scikit-learn's encoders."""

import datetime
import decimal
import tracemalloc

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import bigsvm
from bigsvm.conversion.formats import Asked
from bigsvm.conversion.from_arrays import batches_of, written
from bigsvm.data.place import Place
from bigsvm.errors import (
    DataCorruptionError,
    DataError,
    MemoryBudgetError,
    ModelError,
    ParameterError,
)
from bigsvm.models.files import read_model

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

N = 900
CITIES = ["Bonn", "Köln", "Rom"]


def data(seed=0, *, lacking=False):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.standard_normal(N),
            "city": rng.choice(CITIES, N),
            "old": rng.random(N) < 0.5,
            "n": rng.integers(0, 100, N).astype(np.int8),
        }
    )
    y = np.where(frame.x + (frame.city == "Rom") > 0.3, "yes", "no")
    if lacking:
        frame = frame.astype({"n": "Int8", "city": object})
        for column, step in (("x", 5), ("n", 9), ("city", 7)):
            frame.loc[frame.index % step == 1, column] = None
    return frame.assign(y=y)


def parquet(frame, path):
    frame.to_parquet(path / "rows.parquet", row_group_size=130)
    return path / "rows.parquet"


def folder(frame, path):
    (path / "parts").mkdir()
    for i, start in enumerate(range(0, N, 250)):
        part = frame[start : start + 250]
        part = part[part.columns[:: -1 if i % 2 else 1]]
        part.astype({"city": "category"} if i % 2 else {}).to_parquet(path / "parts" / f"{i}.pq")
    return path / "parts"


def csv(frame, path):
    frame.to_csv(path / "rows.csv", index=False)
    return path / "rows.csv"


def feather(frame, path):
    frame.astype({"city": "category"}).to_feather(path / "rows.feather")
    return path / "rows.feather"


def lazy(frame, path):
    return pytest.importorskip("polars").from_pandas(frame).lazy()


def polars_categories(frame, path):
    polars = pytest.importorskip("polars")
    return polars.from_pandas(frame).cast({"city": polars.Categorical}).lazy()


def dataset(frame, path):
    from pyarrow import dataset

    return dataset.dataset(folder(frame, path))


def in_memory(frame, path):
    return frame


def categories(frame, path):
    return frame.astype({"city": "category"})


def arrow(frame, path):
    return pa.table(frame)


def polars_frame(frame, path):
    return pytest.importorskip("polars").from_pandas(frame)


DOORS = [
    parquet, folder, csv, feather, lazy, polars_categories, dataset, in_memory, categories, arrow,
    polars_frame,
]  # fmt: skip


def matrix_of(frame):
    """One-hot columns as pandas makes them, in the places of their columns."""
    made = pd.get_dummies(frame.drop(columns="y"), prefix_sep="=")
    return made[["x", *(f"city={city}" for city in CITIES), "old", "n"]].astype(float)


def assert_same_rows(store, X, y, path, **options):
    expected = bigsvm.write_store(path / "expected.zarr", X, y, dtype="float64", **options)
    assert store.attributes.fingerprint == expected.attributes.fingerprint


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("door", DOORS)
def test_words_become_the_columns_of_get_dummies(door, layout, tmp_path):
    frame = data()
    store = bigsvm.write_store(
        tmp_path / "found.zarr", door(frame, tmp_path), "y", categories="onehot", layout=layout,
        dtype="float64",
    )  # fmt: skip
    expected = matrix_of(frame)
    assert store.feature_names == tuple(expected.columns)
    assert_same_rows(store, expected.to_numpy(), frame.y, tmp_path, layout=layout)


@pytest.mark.parametrize("missing", ["mean", "median", "zero"])
@pytest.mark.parametrize("door", DOORS)
def test_missing_values_become_those_of_the_imputer(door, missing, tmp_path):
    frame = data(lacking=True)
    store = bigsvm.write_store(
        tmp_path / "found.zarr", door(frame, tmp_path), "y", categories="onehot", missing=missing,
        missing_indicator=True, dtype="float64", layout="dense",
    )  # fmt: skip
    numbers = (
        frame[["x", "n", "old"]].astype({"n": "Float64"}).to_numpy(float, na_value=np.nan).copy("C")
    )
    strategy = {"fill_value": 0, "strategy": "constant"} if missing == "zero" else {}
    x, n, old = SimpleImputer(**(strategy or {"strategy": missing})).fit_transform(numbers).T
    given = frame[["city"]].fillna("?")
    words = OneHotEncoder(categories=[CITIES], handle_unknown="ignore").fit_transform(given)
    lacks = frame.isna().to_numpy(float)
    expected = np.column_stack([x, lacks[:, 0], words.toarray(), lacks[:, 1], old, n, lacks[:, 3]])
    assert store.feature_names == (
        "x", "x=missing", "city=Bonn", "city=Köln", "city=Rom", "city=missing", "old", "n",
        "n=missing",
    )  # fmt: skip
    assert_same_rows(store, expected, frame.y, tmp_path)


def test_a_model_is_that_of_the_matrix_and_predicts_tables(tmp_path):
    frame = data()
    store = bigsvm.write_store(tmp_path / "s.zarr", csv(frame, tmp_path), "y", categories="onehot")
    matrix = bigsvm.write_store(tmp_path / "m.zarr", matrix_of(frame).to_numpy(), frame.y)
    model, expected = bigsvm.SVC(gamma=0.3).fit(store), bigsvm.SVC(gamma=0.3).fit(matrix)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    np.testing.assert_array_equal(model.support_, expected.support_)
    assert model.feature_names_in_.tolist() == ["x", "city", "old", "n"]
    assert model.n_features_in_ == 4
    assert model.model_.feature_names == tuple(matrix_of(frame).columns)
    model.save(tmp_path / "model")
    for fitted in (model, bigsvm.load(tmp_path / "model")):
        assert fitted.feature_names_in_.tolist() == ["x", "city", "old", "n"]
        assert fitted.n_features_in_ == 4
        new = data(1)
        values = expected.decision_function(matrix_of(new).to_numpy())
        for rows in (new, new[new.columns[::-1]], csv(new, tmp_path), arrow(new, tmp_path)):
            np.testing.assert_allclose(fitted.decision_function(rows), values, atol=1e-9)
            assert fitted.score(rows, "y") == expected.score(matrix_of(new).to_numpy(), new.y)
        assert fitted.score(new, new.y) == fitted.score(new, "y")


def test_a_frame_is_fitted_beside_its_labels():
    frame = data(lacking=True)
    told = {"categories": "onehot", "missing": "mean"}
    model = bigsvm.SVC(gamma=0.3).fit(frame.drop(columns="y"), frame.y, **told)
    other = bigsvm.SVC(gamma=0.3).fit(frame, "y", **told)
    assert model.feature_names_in_.tolist() == other.feature_names_in_.tolist()
    np.testing.assert_array_equal(model.predict(frame), other.predict(frame))
    outliers = bigsvm.OneClassSVM(nu=0.2).fit(frame.drop(columns="y"), **told)
    assert 0.1 < np.mean(outliers.predict(frame) == -1) < 0.3


def test_further_stores_and_rows_keep_the_encoding(tmp_path):
    frame = data(lacking=True)
    store = bigsvm.write_store(
        tmp_path / "s.zarr", frame, "y", categories="onehot", missing="mean", unknown="zeros"
    )
    scaled = bigsvm.scale_store(store, tmp_path / "scaled.zarr")
    copy = bigsvm.write_store(tmp_path / "copy.zarr", store.rows, store.labels())
    for other in (scaled, copy):
        assert other.attributes.encoding == store.attributes.encoding
    new = data(2)
    new.loc[3, "city"] = "Ulm"
    model = bigsvm.SVC(gamma=0.3).fit(scaled)
    assert model.predict(new).shape == (N,)
    # A further source of the same columns becomes rows like those of the store.
    asked = Asked.of("y", None, encoding=store.attributes.encoding, memory="64MB")
    more = written(Place.of(tmp_path / "more.zarr"), batches_of(new, asked), budget=asked.memory)
    assert more.feature_names == store.feature_names
    assert more.attributes.encoding == store.attributes.encoding


def test_the_memory_does_not_change_a_store(tmp_path):
    frame = pd.concat([data(seed, lacking=True) for seed in range(90)])
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path, row_group_size=5000)
    stores = [
        bigsvm.write_store(
            tmp_path / f"{memory}.zarr", path, "y", categories="onehot", missing="mean",
            memory=memory,
        )
        for memory in ("32MiB", "2GB")
    ]  # fmt: skip
    assert stores[0].attributes == stores[1].attributes


TYPES = {
    "bool": (pa.array([True, False, None] * 300), [1, 0, 0.5] * 300),
    "decimal": (pa.array([decimal.Decimal("1.25"), decimal.Decimal(3), None] * 300),
                [1.25, 3, 2.125] * 300),
    "nullable": (pa.array([1, 3, None] * 300, pa.uint16()), [1, 3, 2] * 300),
    "half": (pa.array(np.array([1, 3, np.nan] * 300, np.float16)), [1, 3, 2] * 300),
    "nan beside null": (pa.array([1.0, float("nan"), None] * 300, from_pandas=False), [1.0] * N),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_types_of_numbers(name, tmp_path):
    column, expected = TYPES[name]
    table = pa.table({"a": column, "y": np.arange(N) % 2})
    pq.write_table(table, tmp_path / "t.parquet")
    store = bigsvm.write_store(
        tmp_path / "s.zarr", tmp_path / "t.parquet", "y", missing="mean", shuffle=False
    )
    np.testing.assert_array_equal(store.rows.read(0, N)[:, 0], expected)


def test_types_of_words(tmp_path):
    words = ["", "a", None, "a=b", "ß"] * 180
    columns = {
        "text": pa.array(words),
        "large": pa.array(words, pa.large_string()),
        "view": pa.array(words, pa.string_view()),
        "dictionary": pa.array(words).dictionary_encode(),
        "none in it": pa.DictionaryArray.from_arrays(
            np.arange(N, dtype=np.int16) % 5, pa.array(words[:5])
        ),
        "numbers": pa.array([10, 2, None, 2, 2] * 180).dictionary_encode(),
    }
    table = pa.table({**columns, "y": np.arange(N) % 2})
    store = bigsvm.write_store(
        tmp_path / "s.zarr", table, "y", categories="onehot", missing="zero", shuffle=False,
        layout="dense",
    )  # fmt: skip
    made = store.attributes.encoding["categories"]
    assert made.pop("numbers") == ["10", "2"]
    assert set(map(tuple, made.values())) == {("", "a", "a=b", "ß")}
    X = store.rows.read(0, N)
    one = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    for start in range(0, 20, 4):
        np.testing.assert_array_equal(X[:5, start : start + 4], one)
    np.testing.assert_array_equal(X[:5, 20:], [[1, 0], [0, 1], [0, 0], [0, 1], [0, 1]])


def test_none_nan_and_na_are_missing_words_and_an_empty_one_is_a_word(tmp_path):
    frame = data().assign(city=["Rom", None, np.nan, pd.NA, "", "Bonn"] * 150)
    store = bigsvm.write_store(
        tmp_path / "s.zarr", frame, "y", categories="onehot", missing="zero", shuffle=False,
        missing_indicator=True, layout="dense",
    )  # fmt: skip
    assert store.feature_names[1:5] == ("city=", "city=Bonn", "city=Rom", "city=missing")
    lacks = [0, 0, 0, 1]
    expected = [[0, 0, 1, 0], lacks, lacks, lacks, [1, 0, 0, 0], [0, 1, 0, 0]] * 150
    np.testing.assert_array_equal(store.rows.read(0, N)[:, 1:5], expected)


def with_column(values, name="city"):
    return data().assign(**{name: values})


DAY = datetime.date(2024, 2, 29)
REFUSED = {
    "words": (data(), {}, r"column 'city' of X holds words.* by categories='onehot'"),
    "missing": (data(lacking=True), {"categories": "onehot"},
                r"missing in 'x' \(180\), 'city' \(129\), 'n' \(100\); fill .*missing='mean'"),
    "a date": (with_column([DAY] * N), {"categories": "onehot"}, "'city' holds date32.*; make it"),
    "a time": (with_column(pd.Timestamp(DAY)), {}, "'city' holds timestamp.*; make it a number"),
    "bytes": (with_column([b"a"] * N), {"categories": "onehot"}, "'city' of X holds binary"),
    "a list": (with_column([[1]] * N), {"categories": "onehot"}, "'city' of X holds list"),
    "a mixture": (with_column(["a", 1, 2.5] * 300), {"categories": "onehot"},
                  "column 'city' is not read"),
    "many words": (with_column([f"word {i}" for i in range(N)]), {"categories": "onehot"},
                   "'city' has 900 different words in the first 900 rows, more than max_cat"),
    "one too many": (data(), {"categories": "onehot", "max_categories": 2},
                     "'city' has 3 different words .* more than max_categories=2"),
    "a long word": (with_column(["a" * 10_000_000] + ["b"] * (N - 1)), {"categories": "onehot"},
                    "'city' has a word of 10000000 characters"),
    "nothing": (with_column(None), {"categories": "onehot", "missing": "zero"},
                "column 'city' has no values"),
    "no numbers": (with_column(np.nan, "x"), {"categories": "onehot", "missing": "median"},
                   "column 'x' has no values"),
    "infinite": (with_column(np.inf, "x"), {"categories": "onehot", "missing": "mean"},
                 "column 'x' has values that are infinite or too large: its mean is inf"),
    "a name twice": (data().rename(columns={"x": "city=Rom"}), {"categories": "onehot"},
                     "second column 'city=Rom'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_tables_are_refused(case, tmp_path):
    frame, options, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        bigsvm.write_store(tmp_path / "s.zarr", frame, "y", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"categories": "ordinal"}, "categories='ordinal'; it must be one of onehot"),
        ({"missing": "mode"}, "missing='mode'; it must be one of mean, median, zero"),
        ({"categories": "onehot", "unknown": "ignore"}, "unknown='ignore'"),
        ({"categories": "onehot", "max_categories": 0}, "max_categories=0"),
        ({"missing_indicator": True}, "needs missing"),
        ({"unknown": "zeros"}, "max_categories and unknown need categories='onehot'"),
    ],
)
def test_values_without_meaning(options, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        bigsvm.write_store(tmp_path / "s.zarr", data(), "y", **options)
    with pytest.raises(ParameterError, match=message):
        bigsvm.SVC().fit(data(), "y", **options)


def test_rows_that_are_no_table(tmp_path):
    X = np.zeros((4, 2))
    np.savez(tmp_path / "a.npz", X=X, y=[0, 1, 0, 1])
    with pytest.raises(ParameterError, match="for tables with named columns, not for npz"):
        bigsvm.write_store(tmp_path / "s.zarr", tmp_path / "a.npz", "y", missing="mean")
    with pytest.raises(ParameterError, match="not for batches"):
        bigsvm.SVC().fit(lambda: iter([(X, [0, 1, 0, 1])]), missing="mean")
    for rows in (X, bigsvm.write_store(tmp_path / "s.zarr", X, [0, 1, 0, 1])):
        with pytest.raises(ParameterError, match="give one of these"):
            bigsvm.SVC().fit(rows, [0, 1, 0, 1], missing="mean")
    with pytest.raises(ParameterError, match="with the name of their labels"):
        bigsvm.write_store(tmp_path / "t.zarr", X, [0, 1, 0, 1], missing="mean")
    with pytest.raises(TypeError, match="y_ordr"):
        bigsvm.SVC().fit(data(), "y", y_ordr="input")


def test_a_reader_that_is_read_once(tmp_path):
    table = pa.table(data())
    with pytest.raises(DataError, match="read once only; write it to a file first"):
        bigsvm.SVC().fit(table.to_reader(), "y", categories="onehot")
    model = bigsvm.SVC(gamma=0.3).fit(table, "y", categories="onehot")
    np.testing.assert_array_equal(model.predict(table.to_reader()), model.predict(table))


def test_a_median_that_does_not_fit_is_refused(tmp_path):
    n = 500_000
    table = pa.table({"a": np.arange(n, dtype=np.float64), "y": np.arange(n) % 2})
    with pytest.raises(MemoryBudgetError, match=r"median of 500000 values .* use memory="):
        bigsvm.write_store(tmp_path / "s.zarr", table, "y", missing="median", memory="32MiB")
    with pytest.raises(MemoryBudgetError) as raised:
        bigsvm.write_store(tmp_path / "s.zarr", table, "y", missing="median", memory="32MiB")
    enough = str(raised.value).split("memory=")[1].split(",")[0]
    store = bigsvm.write_store(tmp_path / "s.zarr", table, "y", missing="median", memory=enough)
    assert store.attributes.encoding["fills"] == [(n - 1) / 2]


def test_many_words_take_little_memory(tmp_path):
    n = 1_000_000
    table = pa.table({"a": [f"word number {i}" for i in range(n)], "y": np.arange(n) % 2})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50_000)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="different words in the first"):
            bigsvm.write_store(
                tmp_path / "s.zarr", tmp_path / "t.parquet", "y", categories="onehot"
            )
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_long_word_of_many_rows_is_not_repeated(tmp_path):
    """100 000 rows of 10 MB would be 1 TB."""
    indices = np.zeros(100_000, np.int32)
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["a" * 10_000_000]))
    table = pa.table({"a": words, "y": np.arange(100_000) % 2})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="a word of 10000000 characters"):
        bigsvm.write_store(tmp_path / "s.zarr", tmp_path / "t.parquet", "y", categories="onehot")


def test_parts_with_words_and_numbers(tmp_path):
    (tmp_path / "parts").mkdir()
    for i, city in enumerate([CITIES * 300, np.arange(N)]):
        with_column(city).to_parquet(tmp_path / "parts" / f"{i}.parquet")
    with pytest.raises(DataError, match=r"1.parquet: column 'city' holds words here or in .*0.par"):
        bigsvm.write_store(tmp_path / "s.zarr", tmp_path / "parts", "y", categories="onehot")


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    path = csv(data(), tmp_path)
    text = path.read_text()

    def half(progress):
        path.write_text("".join(text.splitlines(keepends=True)[:400]))

    with pytest.raises(DataError, match="has changed while it was read"):
        bigsvm.write_store(
            tmp_path / "s.zarr", path, "y", categories="onehot", missing="median",
            on_progress=half,
        )  # fmt: skip


def test_the_row_of_an_unknown_word_is_that_of_its_file(model, tmp_path):
    new = data()
    new.loc[600, "city"] = "Ulm"
    with pytest.raises(DataError, match=r"2.pq: column 'city' has 'Ulm' in row 100 \(from 0\)"):
        model.score(folder(new, tmp_path), "y")


def test_rows_that_do_not_fit_are_predicted_through_a_store(model):
    new = pd.concat([data(1)] * 220)
    small = bigsvm.SVC(gamma=0.3, memory="32MiB").fit(data(), "y", categories="onehot")
    np.testing.assert_array_equal(small.predict(new), np.tile(model.predict(data(1)), 220))


def test_scikit_learn_passes_the_arguments():
    from sklearn.model_selection import cross_val_score

    frame = data(lacking=True)
    scores = cross_val_score(
        bigsvm.SVC(gamma=0.3), frame.drop(columns="y"), frame.y, cv=3,
        params={"categories": "onehot", "missing": "mean"},
    )  # fmt: skip
    assert min(scores) > 0.7


@pytest.fixture(scope="module")
def model():
    return bigsvm.SVC(gamma=0.3).fit(data(), "y", categories="onehot")


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda f: f.assign(city=["Ulm", *f.city[1:]]), "'city' has 'Ulm' in row 0 .*'zeros'"),
        (lambda f: f.assign(city=["a" * 10_000_000, *f.city[1:]]), "'city' has 'aaa.* in row 0"),
        (lambda f: f.drop(columns="city"), "there is no column 'city'"),
        (lambda f: f.assign(city=1), "'city' holds int64, and words in training"),
        (lambda f: f.assign(x="1"), "'x' holds (large_)?string, and numbers in training"),
        (lambda f: f.assign(city=[None, *f.city[1:]]), r"missing in 'city' \(1\); train with"),
        (lambda f: f.assign(x=np.nan), r"missing in 'x' \(900\); train with missing='mean'"),
        (lambda f: f[:0], "no rows"),
        (lambda f: f[["x", "n", "old"]].to_numpy(float), "expecting 4 features"),
        (lambda f: matrix_of(f).to_numpy(), "expecting 4 features"),
    ],
)
def test_other_tables_are_refused(changed, message, model, tmp_path):
    rows = changed(data())
    with pytest.raises(ValueError, match=message):
        model.predict(rows)
    if not isinstance(rows, np.ndarray):
        with pytest.raises(DataError, match=message):
            model.predict(parquet(rows, tmp_path))


def test_a_frame_of_dask_is_refused(model):
    dd = pytest.importorskip("dask.dataframe")
    with pytest.raises(DataError, match="makes its 6 of those of a table"):
        model.predict(dd.from_pandas(data()[["x", "old", "n"]], npartitions=2))


def test_unknown_words_are_zeros_if_told(tmp_path):
    told = {"categories": "onehot", "unknown": "zeros"}
    model = bigsvm.SVC(gamma=0.3).fit(data(), "y", **told)
    new = data(1)
    expected = matrix_of(new).to_numpy()
    expected[3, 1:4] = 0
    new.loc[3, "city"] = "Ulm"
    store = bigsvm.write_store(tmp_path / "s.zarr", expected, new.y, shuffle=False)
    found = model.decision_function(new)
    np.testing.assert_allclose(found, model.decision_function(store), atol=1e-9)
    new.loc[3, "city"] = None
    with pytest.raises(DataError, match=r"missing in 'city' \(1\)"):
        model.predict(new)


def test_csv_of_words_that_look_like_numbers(tmp_path):
    frame = data().assign(city=["01", "2", "A"] * 300)
    model = bigsvm.SVC(gamma=0.3).fit(csv(frame, tmp_path), "y", categories="onehot")
    rows = csv(frame[frame.city != "A"], tmp_path)
    expected = model.predict(frame[frame.city != "A"])
    np.testing.assert_array_equal(model.predict(rows), expected)


FORGED = {
    "columns": [["x"], ["x", "city", "old", "n", "n"], "x", [1], [["x"]]],
    "categories": [{}, {"city": ["Köln", "Bonn", "Rom"]}, {"city": []}, {"town": CITIES},
                   {"city": ["a", "a", "b"]}, {"city": [1, 2, 3]}, [], None],
    "fills": [[0.0], [0.0, 0.0, 0.0, "a"], [0.0, 0.0, 0.0, float("nan")], 0],
    "indicators": [["x"], ["town"], "x", None],
    "unknown": ["ignore", None, 1],
}  # fmt: skip
FORGERIES = [(field, value) for field, values in FORGED.items() for value in values]


@pytest.mark.parametrize(("field", "value"), FORGERIES)
def test_a_forged_record_of_a_model_is_refused(field, value, model, tmp_path):
    from dataclasses import replace

    expansion = model.model_
    encoding = {**expansion.encoding, field: value}
    forged = replace(expansion, provenance={**expansion.provenance, "encoding": encoding})
    forged.save(tmp_path / "m")
    with pytest.raises(ModelError, match=r"encoding|categories"):
        read_model(tmp_path / "m", dict)
    with pytest.raises(ModelError):
        bigsvm.load(tmp_path / "m")


@pytest.mark.parametrize(("field", "value"), [*FORGERIES, ("more", 1)])
def test_a_forged_record_of_a_store_is_refused(field, value, tmp_path):
    from tests.data.test_store_damage import edit_attributes

    store = bigsvm.write_store(tmp_path / "s.zarr", data(), "y", categories="onehot")
    edit_attributes(store.path, encoding={**store.attributes.encoding, field: value})
    with pytest.raises(DataCorruptionError, match=r"encoding|categories"):
        bigsvm.open_store(store.path)


def test_without_words_there_is_no_record(tmp_path):
    frame = data().drop(columns="city")
    store = bigsvm.write_store(tmp_path / "s.zarr", frame, "y", categories="onehot")
    plain = bigsvm.write_store(tmp_path / "p.zarr", frame, "y")
    assert store.attributes == plain.attributes
    assert store.attributes.encoding is None
