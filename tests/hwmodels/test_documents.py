"""Strict YAML: what is read, where it stood, and what is refused in which words."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hwmodels.documents import parse, read
from hwmodels.errors import DocumentError

BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in ("ab", "bc", "cd", "de")
)
MANY = "more than 10,000 values (aliases that multiply?)"


def message(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        parse(text, "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f.yaml: empty file"),
        ("# nothing\n", "f.yaml: empty file"),
        ("- 1\n", "f.yaml:1: expected a mapping of keys to values"),
        ("\n5\n", "f.yaml:2: expected a mapping of keys to values"),
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: key given twice"),
        ("a:\n  b: 1\n  b: 2\n", "f.yaml:3: a.b: key given twice"),
        ("a:\n- x: 1\n- x: 1\n  x: 2\n", "f.yaml:4: a[1].x: key given twice"),
        ("1: a\n'1': b\n", "f.yaml:2: 1: key given twice"),
        ("a: !size 1\n", "f.yaml:1: a: tags such as !size are not allowed"),
        ("? {a: 1}\n: 2\n", "f.yaml:1: keys must be plain words"),
        ("a:\n  [b]: 1\n", "f.yaml:2: a: keys must be plain words"),
        ("a:\n- .nan\n", "f.yaml:2: a[0]: must be a finite number, got .nan"),
        ("a: -.inf\n", "f.yaml:1: a: must be a finite number, got -.inf"),
        ("a: 1e999\n", "f.yaml:1: a: must be a finite number, got 1e999"),
        (BOMB, f"f.yaml:1: d[7][8][8][9]: {MANY}"),
        ("a: " + "[" * 50 + "]" * 50, "f.yaml:1: a" + "[0]" * 40 + ": nested deeper than 40 levels"),
        ("a: &x {b: *x}\n", "f.yaml:1: a" + ".b" * 40 + ": nested deeper than 40 levels"),
        ("a: *x\n", "f.yaml:1: not valid YAML: found undefined alias 'x'"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: not valid YAML: but found another document"),
        ("a: [1, 2\n", "f.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\tb: 1\n", "f.yaml:2: not valid YAML: found character '\\t' that cannot start any token"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, expected: str) -> None:
    assert message(text) == expected


@pytest.mark.parametrize("opening", ["[", "{b: ", "- ", "? "])
def test_bottomless_nesting_is_refused(opening: str) -> None:
    assert message("a:\n  " + opening * 800).startswith("f.yaml: not valid YAML: maximum recursion depth")


def test_a_number_of_5000_digits_is_refused() -> None:
    assert message("a: " + "9" * 5000).startswith("f.yaml: not valid YAML: Exceeds the limit (4300")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1.5e-3", 0.0015),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("017", 17),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("0.5.10", "0.5.10"),
        ("'1'", "1"),
        ("", None),
        ("~", None),
        ("[1, a]", [1, "a"]),
        ("{b: 1}", {"b": 1}),
    ],
)
def test_values_are_read_as_yaml_1_2(text: str, value: object) -> None:
    got = parse(f"a: {text}\n", "f.yaml").data["a"]
    assert (type(got), got) == (type(value), value)


def test_an_alias_repeats_what_it_names() -> None:
    data = parse("a: &x {b: 1}\nc: *x\n", "f.yaml").data
    assert data == {"a": {"b": 1}, "c": {"b": 1}}


# Escaped in JSON as one code unit each, which YAML reads alike.
characters = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(characters, max_size=20)
)
words = st.text(characters, max_size=8)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(words, plain, min_size=1, max_size=4))
def test_plain_data_survives_a_round_trip(data: dict[str, Any]) -> None:
    assert parse(json.dumps(data), "f.yaml").data == data
    assert parse(json.dumps(data, indent=2), "f.yaml").data == data


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_every_key_knows_its_line(gaps: list[int]) -> None:
    text = "".join("# gap\n" * gap + f"k{i}: 1\n" for i, gap in enumerate(gaps))
    places = parse(text, "f.yaml").places
    for i in range(len(gaps)):
        assert places[f"k{i}",] == ("f.yaml", sum(gaps[: i + 1]) + i + 1)


def test_nested_values_know_their_line() -> None:
    document = parse("a:\n  b:\n    - 1\n    - c: 2\n", "f.yaml")
    lines = {path: line for path, (_, line) in document.places.items()}
    assert lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", 0): 3,
        ("a", "b", 1): 4,
        ("a", "b", 1, "c"): 4,
    }


def test_an_unknown_path_is_placed_at_its_nearest_ancestor() -> None:
    document = parse("x: 1\na:\n  b: 1\n", "f.yaml")
    assert document.place(("a", "z", 3)) == ("f.yaml", 2)
    assert document.place(("z",)) == ("f.yaml", 0)


def reads(text: str) -> bool:
    """True where *text* is a document, False where it is refused; anything else is raised."""
    with suppress(DocumentError):
        parse(text, "f.yaml")
        return True
    return False


@given(st.text())
def test_arbitrary_text_is_read_or_refused(text: str) -> None:
    assert reads(text) in (True, False)


TOKENS = [
    *"ab1:-?,[]{}&*!|>'\"#%@~=",
    *("!t", "&x", "*x", "---", "...", ".nan", "1e999", "0x", "<<", ": ", "- ", " ", "  ", "\n", "\n  ", "\t"),
]


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map("".join))
def test_yaml_like_text_is_read_or_refused(text: str) -> None:
    assume(text.count("&") <= 1)
    assert reads(text) in (True, False)


@given(st.binary(max_size=50))
def test_arbitrary_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    with suppress(DocumentError):
        assert isinstance(read(path).data, dict)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: \xff\n", "not UTF-8 text: invalid start byte"),
        (b"a: " + b"x" * 1_000_000, "larger than 100,000 bytes"),
        (b"", "empty file"),
    ],
)
def test_unreadable_content_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: {problem}"


@pytest.mark.parametrize(("name", "problem"), [("nothing.yaml", "no such file"), ("", "Is a directory")])
def test_a_path_without_a_file_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {problem}"


def test_the_caller_chooses_the_error(tmp_path: Path) -> None:
    mine: type[DocumentError] = type("Mine", (DocumentError,), {})
    with pytest.raises(mine):
        parse("[]", "f", mine)
    with pytest.raises(mine):
        read(tmp_path / "x", mine)
