"""Errors survive being pickled and being raised again as ``type(e)(*e.args)``."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import DocumentError, HardwareError, MeasuredFileError

text = st.text(max_size=20)
errors = st.one_of(
    st.builds(HardwareError, text, text),
    st.builds(DocumentError, text, st.integers(0, 999), text, text),
    st.builds(MeasuredFileError, text, st.integers(0, 999), text, text),
)


@given(errors)
def test_a_pickled_error_says_the_same(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@given(errors)
def test_a_rebuilt_error_says_the_same(error: Exception) -> None:
    again = type(error)(*error.args)
    assert (str(again), vars(again)) == (str(error), vars(error))


@given(errors)
def test_a_copied_error_says_the_same(error: Exception) -> None:
    assert str(copy.copy(error)) == str(error)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (HardwareError("b300_sxm", "no table"), "b300_sxm: no table"),
        (DocumentError("a.yaml", 3, "gpus", "no such GPU"), "a.yaml:3: gpus: no such GPU"),
        (DocumentError("a.yaml", 3, "", "not valid"), "a.yaml:3: not valid"),
        (DocumentError("a.yaml", 0, "gpus", "missing"), "a.yaml: gpus: missing"),
        (DocumentError("a.yaml", 0, "", "empty file"), "a.yaml: empty file"),
        (MeasuredFileError("a.jsonl", 2, "NaN", "a number"), "a.jsonl:2: NaN; expected a number"),
    ],
)
def test_messages_name_what_they_know(error: Exception, message: str) -> None:
    assert str(error) == message
