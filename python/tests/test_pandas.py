"""Series of pandas on their way in: with numpy's types as arrays, with those of its own as Arrow."""

import numpy as np
import pyarrow as pa
import pytest

import forebay
from conftest import ids

pandas = pytest.importorskip("pandas")


def arrow_backed(values, type_):
    return pandas.Series(pandas.arrays.ArrowExtensionArray(pa.chunked_array(values, type_)))


def cells(store, type_name: str, series):
    table = store.create_table("t", {"x": type_name})
    rows = table.insert(policy_version=0, sample_ids=ids("q", len(series)), x=series)
    return table.cells(rows, "x")


def test_what_is_not_a_number_in_a_series_is_no_null(store):
    first, second = cells(store, "float32", pandas.Series([1.5, float("nan")]))
    assert first == 1.5 and np.isnan(second)


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        ("int64", [1, 2]),
        ("bool", [True, False]),
        ("utf8", ["a", "b"]),
        ("utf8", ["a", None]),
        ("list<int32>", [[1, 2], [3]]),
        ("list<float32>", [np.array([0.5, 1.5], np.float32), None]),
        ("tensor<float32, [2, 2]>", [np.ones((2, 2)), np.zeros((2, 2))]),
    ],
)
def test_a_series_is_written_as_a_list_of_its_values(store, type_name, values):
    found = cells(store, type_name, pandas.Series(values))
    plain = [value.tolist() if hasattr(value, "tolist") else value for value in found]
    assert plain == [value.tolist() if hasattr(value, "tolist") else value for value in values]


@pytest.mark.parametrize(
    ("type_name", "series", "expected"),
    [
        ("int64", pandas.Series([1, None], dtype="Int64"), [1, None]),
        ("float64", pandas.Series([0.5, None], dtype="Float64"), [0.5, None]),
        ("bool", pandas.Series([True, None], dtype="boolean"), [True, None]),
        ("utf8", pandas.Series(["a", None], dtype="string"), ["a", None]),
        ("utf8", pandas.Series(["a", "b", "a"], dtype="category"), ["a", "b", "a"]),
        ("int32", arrow_backed([[1], [None, 3]], pa.int32()), [1, None, 3]),
        ("list<int32>", arrow_backed([[[1, 2]], [None, [3]]], pa.list_(pa.int32())), [[1, 2], None, [3]]),
        ("list<int32>", arrow_backed([[[1, 2], [3]]], pa.list_(pa.int32())), [[1, 2], [3]]),
    ],
    ids=["Int64", "Float64", "boolean", "string", "category", "chunks of numbers", "chunks of lists", "one chunk of lists"],
)
def test_a_series_of_types_that_numpy_has_not_is_written_with_its_nulls(store, type_name, series, expected):
    found = cells(store, type_name, series)
    assert [value.tolist() if hasattr(value, "tolist") else value for value in found] == expected


def test_a_series_that_does_not_fit_is_refused_with_the_column(store):
    table = store.create_table("t", {"x": "list<int32>"})
    for series in (pandas.Series([1.5]), pandas.Series([np.ones((2, 2), np.int32)])):
        with pytest.raises(forebay.InputError, match='column "x"'):
            table.insert(policy_version=0, sample_ids=["q_0_0"], x=series)
