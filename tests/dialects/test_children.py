"""What child tables log: values of their owner (spec/triggers.md 2)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from platforms import STYLES, Kept, Logged, Platform, needs, usr_tables

PHONE = "usr_phone.phoneno"
KEY_AND_MAIL = (
    "CREATE TABLE usr_mail (idu {integer} REFERENCES usr, mail {string})",
    "CREATE TABLE usr_key (idu {integer} REFERENCES usr, code {binary}, UNIQUE (idu, code))",
)


def watched(
    platform: Platform, trigger_level: str, row_style: str, more: Sequence[str]
) -> Sequence[str]:
    """The class with its child, and with more children."""
    platform.run(*usr_tables(platform.name), *more)
    platform.trigger_level = trigger_level
    platform.watch("usr", row_style)
    return (*(["usr_mail", "usr_key"] if more else []), "usr_phone", "usr")


@pytest.fixture(params=["row", "statement"])
def owners(kept: Kept, request: pytest.FixtureRequest) -> Platform:
    """Two objects under each kind of capture, in the style of the test."""
    return _owners(kept, request)


@pytest.fixture(params=["row", "statement"])
def owners_of_more(kept: Kept, request: pytest.FixtureRequest) -> Platform:
    """The same with more children."""
    return _owners(kept, request, KEY_AND_MAIL)


def _owners(kept: Kept, request: pytest.FixtureRequest, more: Sequence[str] = ()) -> Platform:
    if request.param == "statement":
        needs(kept.dialect, "statement_capture")
    row_style = request.node.callspec.params.get("row_style", "field")
    made = kept.made(watched, request.param, row_style, more)
    made.run("INSERT INTO usr (idu) VALUES (1)", "INSERT INTO usr (idu) VALUES (2)")
    return made


@pytest.mark.parametrize(("row_style", "event_type"), [*zip(STYLES, (2, 2, 8, 8), strict=True)])
def test_a_child_row_is_a_value_of_its_owner(
    owners: Platform, row_style: str, event_type: int
) -> None:

    def value(key: int, old: str | None, new: str | None) -> Logged:
        return (event_type, f"idu={key}", PHONE, *((old, new) if event_type == 2 else (None, None)))

    assert owners.logged(
        "INSERT INTO usr_phone VALUES (1, 'a')", "INSERT INTO usr_phone VALUES (1, 'b')"
    ) == [
        value(1, None, "a"),
        value(1, None, "b"),
    ]
    assert owners.logged("UPDATE usr_phone SET phoneno = 'c' WHERE phoneno = 'b'") == [
        value(1, "b", "c")
    ]
    assert owners.logged("UPDATE usr_phone SET phoneno = phoneno, idu = idu") == []
    assert owners.logged("UPDATE usr_phone SET idu = 2 WHERE phoneno = 'c'") == [
        value(1, "c", None),
        value(2, None, "c"),
    ]
    assert owners.logged("UPDATE usr_phone SET idu = 1, phoneno = 'd' WHERE idu = 2") == [
        value(2, "c", None),
        value(1, None, "d"),
    ]
    assert owners.logged("DELETE FROM usr_phone WHERE phoneno = 'a'") == [value(1, "a", None)]


def test_truncate_of_a_child_names_each_owner(owners: Platform) -> None:
    owners.needs("truncate")
    owners.run(
        *(f"INSERT INTO usr_phone VALUES ({n}, '{value}')" for n in (1, 2) for value in "ab")
    )
    assert sorted(owners.logged("TRUNCATE TABLE usr_phone")) == [
        (8, f"idu={n}", PHONE, None, None) for n in (1, 2)
    ]


def test_a_child_row_without_owner_or_value_logs_nothing(owners: Platform) -> None:
    assert (
        owners.logged(
            "INSERT INTO usr_phone VALUES (NULL, 'a')", "INSERT INTO usr_phone VALUES (1, NULL)"
        )
        == []
    )
    assert owners.logged("UPDATE usr_phone SET idu = 1 WHERE phoneno = 'a'") == [
        (2, "idu=1", PHONE, None, "a")
    ]
    assert owners.logged("UPDATE usr_phone SET phoneno = 'b' WHERE phoneno IS NULL") == [
        (2, "idu=1", PHONE, None, "b")
    ]
    assert owners.logged("UPDATE usr_phone SET idu = NULL WHERE phoneno = 'a'") == [
        (2, "idu=1", PHONE, "a", None)
    ]
    assert owners.logged("UPDATE usr_phone SET phoneno = 'x' WHERE idu IS NULL") == []


@pytest.mark.parametrize("row_style", STYLES)
def test_a_child_that_may_hold_a_value_twice_is_read_back(
    owners_of_more: Platform, row_style: str
) -> None:
    back = (8, "idu=1", "usr_mail.mail", None, None)
    statement = "INSERT INTO usr_mail VALUES (1, 'a')"
    assert owners_of_more.logged(statement, statement) == [back, back]
    assert owners_of_more.logged("UPDATE usr_mail SET mail = 'b'") == [back, back]
    assert owners_of_more.logged("DELETE FROM usr_mail") == [back, back]


def test_a_binary_value_of_a_child(owners_of_more: Platform) -> None:
    assert owners_of_more.logged(
        "INSERT INTO usr_key VALUES (1, {aaaa})"
    ) == owners_of_more.expected([(2, "idu=1", "usr_key.code", None, "qqo=")], ["usr_key.code"])


@pytest.mark.parametrize("row_style", STYLES)
def test_a_cascade_logs_nothing_after_the_delete_of_its_owner(
    owners: Platform, row_style: str
) -> None:
    owners.needs("owner_look_up")
    owners.run(
        *(
            f"INSERT INTO usr_phone VALUES ({n}, '{value}')"
            for n, value in ((1, "a"), (1, "b"), (2, "c"))
        )
    )
    assert owners.logged("DELETE FROM usr") == [
        (4, "idu=1", None, None, None),
        (4, "idu=2", None, None, None),
    ]


def test_a_cascade_of_a_key_brings_the_values_to_the_new_object(owners: Platform) -> None:
    if owners.name == "oracle":
        pytest.skip("oracle has no ON UPDATE CASCADE")
    owners.run("INSERT INTO usr_phone VALUES (1, 'a')", "INSERT INTO usr_phone VALUES (1, 'b')")
    rows = owners.logged("UPDATE usr SET idu = 5 WHERE idu = 1")
    values = [(2, "idu=5", PHONE, None, "a"), (2, "idu=5", PHONE, None, "b")]
    own = [(4, "idu=1", None, None, None), (1, "idu=5", "fname", None, None)]
    if owners.has("key_cascades"):
        assert rows == [*own, *values]
    elif owners.is_of_family:  # whose cascades fire no triggers
        assert rows == [*own, (8, "idu=5", PHONE, None, None)]
    else:
        # Read back again after the new object: the first rows stand before it.
        assert rows == [*values, *own, (8, "idu=5", PHONE, None, None)]


def test_a_composite_owner_in_another_order(platform: Platform) -> None:
    platform.run(
        "CREATE TABLE acc (branch {string}, num {integer}, n {number}, PRIMARY KEY (num, branch, "
        "n))",
        (
            "CREATE TABLE acc_tag (tag {string}, b {string}, amount {number}, num {integer}, "
            "FOREIGN KEY (b, num, amount) REFERENCES acc (branch, num, n), PRIMARY KEY (b, num, "
            "amount, tag))"
        )
        if platform.name == "postgresql"
        else (
            "CREATE TABLE acc_tag (tag {string}, b {string}, amount {number}, num {integer}, "
            "PRIMARY KEY (b, num, amount, tag), FOREIGN KEY (num, b, amount) REFERENCES acc (num, "
            "branch, n))"
        ),
    )
    platform.watch("acc")
    platform.run("INSERT INTO acc VALUES ('N+W', 7, 1.50)")
    key = 'num=7+branch="N+W"+n=1.5'
    assert platform.logged("INSERT INTO acc_tag VALUES ('x', 'N+W', 1.500, 7)") == [
        (2, key, "acc_tag.tag", None, "x")
    ]
    assert platform.logged("UPDATE acc_tag SET amount = 1.5") == []
    assert platform.logged("DELETE FROM acc_tag") == [(2, key, "acc_tag.tag", "x", None)]
