"""Classes, child tables, attributes, associations and names of the log (spec/xds.md 5, 5.1,
6.4).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from samples import PHONE, USR, columns, database, table, view

from eventlog.changes.json_form import database_from_json, database_to_json
from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, ObjectClass, Table
from eventlog.core.catalog.builder import build_catalog, complete_catalog, view_name
from eventlog.core.values import TYPE_NAMES, ColumnType, Kind, parse_type
from eventlog.errors import BadValue, BadXmlChar, ConfigError

EMP = table(
    "emp", "id integer; boss integer; code char(4); num integer", "id", [("boss", "emp", "id")]
)
GRP = table("grp", "idg integer; name text", "idg")
MEMBER = table(
    "grp_member", "idg integer; idu integer", "", [("idg", "grp", "idg"), ("idu", "usr", "idu")]
)


def build(*tables: dict[str, Any], schema: str | None = "indirect", **options: Any) -> Catalog:
    return complete_catalog(build_catalog(database(*tables, schema=schema), **options))


def names(catalog: Catalog) -> list[str]:
    return [cls.name for cls in catalog.classes]


def attributes(cls: ObjectClass) -> list[str]:
    return [attribute.name for attribute in cls.attributes]


# --- classes --------------------------------------------------------------------------------------


def test_classes_are_tables_with_a_primary_key_and_views_with_a_pk_column() -> None:
    found = build(
        USR,
        PHONE,
        table("keyless", "a text"),
        view("v", "pk_a integer; b text"),
        view("w", "a text"),
    )
    assert names(found) == ["usr", "v"]


def test_tables_that_are_listed_are_the_only_classes() -> None:
    assert names(build(USR, GRP, EMP, tables=["grp", "USR"])) == ["grp", "usr"]


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (
            "nobody",
            "there is no table or view 'nobody' in schema indirect, the only schema that the log watches; ",
        ),
        (
            "keyles",
            "the only schema that the log watches: the nearest is 'keyless'; correct the name",
        ),
        ("hr.usr", "correct the name in the configuration, without schema and quotes, or remove"),
        ("keyless", "'keyless' cannot be a class: it has no primary key"),
        ("v", "'v' cannot be a class: it has no column whose name begins with pk_"),
    ],
)
def test_a_listed_table_must_be_there_and_have_a_key(listed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(table("keyless", "a text"), view("v", "a text"), tables=[listed])


def test_tables_that_are_ignored_are_no_classes() -> None:
    assert names(
        build(USR, table("eventlog", "record_id bigint", "record_id"), ignore=["eventlog"])
    ) == ["usr"]


# --- child tables ---------------------------------------------------------------------------------

ACC = table("acc", "branch text; num integer; title text", "branch num")

CHILDREN = [
    ("one value column", USR, PHONE, ["usr_phone.phoneno"]),
    (
        "two value columns",
        USR,
        table("c", "idu integer; a text; b text", "", [("idu", "usr", "idu")]),
        [],
    ),
    ("no value column", USR, table("c", "idu integer", "", [("idu", "usr", "idu")]), []),
    ("no foreign key", USR, table("c", "idu integer; a text"), []),
    (
        "to another column than the key",
        USR,
        table("c", "x integer; a text", "", [("x", "usr", "lname")]),
        [],
    ),
    (
        "to a part of the key",
        ACC,
        table("c", "num integer; a text", "", [("num", "acc", "num")]),
        [],
    ),
    (
        "to the whole key in another order",
        ACC,
        table("c", "n integer; b text; a text", "", [("n b", "acc", "num branch")]),
        ["c.a"],
    ),
    (
        "a class itself",
        USR,
        table("c", "idu integer; a text", "idu a", [("idu", "usr", "idu")]),
        [],
    ),
]


@pytest.mark.parametrize(
    ("owner", "child", "expected"), [c[1:] for c in CHILDREN], ids=[c[0] for c in CHILDREN]
)
def test_a_child_table_has_a_key_to_the_whole_owner_and_one_value(
    owner: dict[str, Any], child: dict[str, Any], expected: list[str]
) -> None:
    cls = build(owner, child).class_named(owner["name"])
    own = [column["name"] for column in owner["columns"]]
    assert attributes(cls) == own + expected
    assert all(cls.attributes[len(own) + i].multi_valued for i in range(len(expected)))


def test_a_table_with_a_key_that_is_not_listed_is_a_child() -> None:
    phone = table("usr_phone", "idu integer; phoneno text", "idu phoneno", [("idu", "usr", "idu")])
    assert names(build(USR, phone)) == ["usr", "usr_phone"]
    listed = build(USR, phone, tables=["usr"])
    assert attributes(listed.class_named("usr"))[-1] == "usr_phone.phoneno"


def test_owner_columns_stand_in_the_order_of_the_owners_key() -> None:
    child = table("c", "n integer; b text; a text", "", [("n b", "acc", "num branch")])
    assert build(ACC, child).class_named("acc").children[0].owner_columns == ("b", "n")


def test_the_first_foreign_key_by_position_owns_the_child_table() -> None:
    found = build(USR, GRP, MEMBER)
    assert attributes(found.class_named("grp")) == ["idg", "name", "grp_member.idu"]
    assert not found.class_named("usr").children
    swapped = {**MEMBER, "foreign_keys": MEMBER["foreign_keys"][::-1]}
    assert attributes(build(USR, GRP, swapped).class_named("grp")) == [
        "idg",
        "name",
        "grp_member.idu",
    ]


def test_attributes_are_parent_columns_then_children_by_code_points_of_their_names() -> None:
    children = [
        table(name, "idu integer; v text", "", [("idu", "usr", "idu")])
        for name in ("b", "B", "a", "é", "a_")
    ]
    cls = build(USR, *children).class_named("usr")
    own = ["idu", "fname", "lname", "photo"]
    assert attributes(cls) == [*own, "B.v", "a.v", "a_.v", "b.v", "é.v"]


def test_two_columns_of_one_attribute_name_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="'fname' and 'sv_fname' of 'v' are both attribute 'fname'"
    ):
        build(view("v", "pk_id integer; fname text; sv_fname text"))


@pytest.mark.parametrize(
    "broken",
    [table("t\x01", "id integer", "id"), table("t", "id integer; c\x01 text", "id")],
)
def test_names_that_no_document_can_hold_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be published because of the name .*U\+0001"):
        build(broken)


def test_a_schema_that_no_document_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"U\+0002"):
        build(USR, schema="s\x02")


# --- excluded columns -----------------------------------------------------------------------------


def test_an_excluded_column_is_no_attribute() -> None:
    found = build(USR, PHONE, exclude={"usr": ["LNAME"], "usr_phone": ["phoneno"]})
    assert attributes(found.class_named("usr")) == ["idu", "fname", "photo"]
    name = found.log_name("usr")
    assert name is not None
    assert name.attribute("lname") is None
    assert found.log_name("usr_phone") is None


@pytest.mark.parametrize(
    ("excluded", "message"),
    [
        ("nothing", "excluded column 'nothing' is not a column of 'usr'"),
        ("IDU", "key column 'idu' of 'usr' cannot"),
    ],
)
def test_only_columns_that_are_no_keys_can_be_excluded(excluded: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(USR, exclude={"usr": [excluded]})


# --- view columns ---------------------------------------------------------------------------------

VIEW_COLUMNS = [
    ("fname", "fname", False),
    ("sv_fname", "fname", False),
    ("SV_Fname", "Fname", False),
    ("mv_phoneno", "phoneno", True),
    ("MV_phoneno", "phoneno", True),
    ("pk_empno", "pk_empno", False),
    ("pk_sv_empno", "pk_empno", False),
    ("pk__idu__idu", "pk_idu", False),
    ("pk_1__idu__idu", "pk_idu", False),
    ("pk_sv_1__idu__idu", "pk_idu", False),
    ("fk__idu__manager", "fk_manager", False),
    ("fk_sv__idu__manager", "fk_manager", False),
    ("fk_mv__idg__mbr_of", "fk_mbr_of", True),
    ("fk_mv_1__idg__mbr_of", "fk_mbr_of", True),
    ("FK_MV_12__idg__mbr_of", "FK_mbr_of", True),
    # The reference ends at the first "__".
    ("fk__a__b__c", "fk_b__c", False),
    ("pk__a__b__c", "pk_b__c", False),
    # Without a reference it is a plain column.
    ("fk_x", "fk_x", False),
    ("fk_mv_x", "fk_mv_x", False),
    ("fk_1_x", "fk_1_x", False),
    # Not prefixes.
    ("svfname", "svfname", False),
    ("sv_", "sv_", False),
    ("mv_", "mv_", False),
    ("sv_mv_x", "mv_x", False),
    ("sv_ü\n", "ü\n", False),
]


@pytest.mark.parametrize(("column", "name", "multi_valued"), VIEW_COLUMNS)
def test_prefixes_of_view_columns_make_the_attribute(
    column: str, name: str, multi_valued: bool
) -> None:
    attribute, _, is_multi_valued = view_name(column)
    assert (attribute, is_multi_valued) == (name, multi_valued)


def test_keys_of_a_view_are_its_pk_columns_in_their_order() -> None:
    cls = build(view("v", "name text; PK_b integer; pk__idu__a integer; mv_c text")).class_named(
        "v"
    )
    assert [column.name for column in cls.key] == ["PK_b", "pk__idu__a"]
    assert [a.is_key for a in cls.attributes] == [False, True, True, False]
    assert cls.canonical_key("pk__idu__a=2+pk_b=1") == "PK_b=1+pk__idu__a=2"


def test_without_meta_identifiers_names_are_taken_whole_but_pk_still_marks_keys() -> None:
    found = build(view("v", "pk_sv_id integer; sv_fname text; mv_no text"), meta_identifiers=False)
    cls = found.class_named("v")
    assert attributes(cls) == ["pk_sv_id", "sv_fname", "mv_no"]
    assert not any(attribute.multi_valued for attribute in cls.attributes)
    name = found.log_name("v")
    assert name is not None
    assert name.attribute("SV_FNAME") is cls.attributes[1]
    assert name.attribute("fname") is None


VIEW = view("v", "pk__idu__idu integer; fk_mv__idu__member integer; sv_fname text; member text")


@pytest.mark.parametrize(
    ("logged", "column"),
    [
        ("fk_mv__idu__member", "fk_mv__idu__member"),  # its full name
        ("FK_MV__IDU__MEMBER", "fk_mv__idu__member"),
        ("fk_member", "fk_mv__idu__member"),  # its attr-name
        ("member", "member"),  # the full name of another comes before the bare rest
        ("sv_fname", "sv_fname"),
        ("fname", "sv_fname"),
        ("FName", "sv_fname"),
        ("pk__idu__idu", "pk__idu__idu"),
        ("pk_idu", "pk__idu__idu"),
        ("idu", "pk__idu__idu"),
        ("mv_fname", None),
        ("", None),
        ("idu__idu", None),
    ],
)
def test_a_view_column_of_the_log_is_tried_by_full_name_then_attr_name_then_rest(
    logged: str, column: str | None
) -> None:
    found = build(VIEW)
    name = found.log_name("v")
    assert name is not None
    attribute = name.attribute(logged)
    assert (attribute and attribute.column.name) == column


def test_the_bare_rest_of_a_reference_names_it() -> None:
    found = build(view("v", "pk_id integer; fk_mv__idu__member integer"))
    name = found.log_name("v")
    assert name is not None
    assert {name.attribute(text) for text in ("fk_mv__idu__member", "fk_member", "member")} == {
        found.classes[0].attributes[1]
    }


def test_a_key_in_table_key_takes_the_full_name_of_a_view_column_only() -> None:
    cls = build(VIEW).class_named("v")
    assert cls.canonical_key("pk__idu__idu=1") == "pk__idu__idu=1"
    for text in ("pk_idu=1", "idu=1"):
        with pytest.raises(Exception, match="unknown_column"):
            cls.canonical_key(text)


# --- names of the log -----------------------------------------------------------------------------

LIKE = [
    table(name, "id integer; Col text; COL text; other text", "id")
    for name in ("Usr", "USR", "grp")
]


@pytest.mark.parametrize(
    ("logged", "expected"),
    [
        ("Usr", "Usr"),
        ("USR", "USR"),
        ("usr", None),  # two alike
        ("GRP", "grp"),
        ("indirect.GRP", "grp"),
        ("INDIRECT.grp", "grp"),
        ("other.grp", None),
        ("grp ", None),
        ("", None),
    ],
)
def test_a_table_matches_exactly_else_without_case_if_one_does(
    logged: str, expected: str | None
) -> None:
    found = build(*LIKE).log_name(logged)
    assert (found and found.object_class.name) == expected


@pytest.mark.parametrize(
    ("logged", "expected"), [("Col", "Col"), ("col", None), ("OTHER", "other"), ("id", "id")]
)
def test_a_column_matches_exactly_else_without_case_if_one_does(
    logged: str, expected: str | None
) -> None:
    name = build(*LIKE).log_name("grp")
    assert name is not None
    attribute = name.attribute(logged)
    assert (attribute and attribute.name) == expected


@pytest.mark.parametrize("name", ["a.b", "indirect.usr", "a.b.c"])
def test_a_name_with_dots_is_found_with_and_without_its_schema(name: str) -> None:
    found = build(table(name, "id integer", "id"), schema="indirect")
    for logged in (name, f"indirect.{name}"):
        log_name = found.log_name(logged)
        assert log_name is not None
        assert log_name.object_class.name == name


def test_a_table_in_a_schema_with_dots_is_found() -> None:
    assert build(USR, schema="my.schema").log_name("my.schema.usr") is not None


def test_without_schemas_a_dot_is_part_of_the_name() -> None:
    assert build(USR, schema=None).log_name("indirect.usr") is None


@pytest.mark.parametrize(
    ("table_name", "column", "expected"),
    [
        ("usr_phone", "phoneno", "usr_phone.phoneno"),
        ("USR_PHONE", "PHONENO", "usr_phone.phoneno"),
        ("usr", "usr_phone.phoneno", "usr_phone.phoneno"),
        ("usr", "USR_Phone.Phoneno", "usr_phone.phoneno"),
        ("usr", "phoneno", None),
        ("usr_phone", "idu", None),
        ("usr_phone", "fname", None),
        ("usr", "fname", "fname"),
    ],
)
def test_a_childs_value_is_named_by_the_child_or_by_the_parent(
    table_name: str, column: str, expected: str | None
) -> None:
    name = build(USR, PHONE).log_name(table_name)
    assert name is not None
    assert name.object_class.name == "usr"
    attribute = name.attribute(column)
    assert (attribute and attribute.name) == expected


# --- associations ---------------------------------------------------------------------------------

ASSOCIATIONS = [
    ("usr", "idu integer", "idu", "indirect", " idu = 01", "idu=1,table=usr,schema=indirect"),
    ("USR", "IDU integer", "IDU", "INDIRECT", "idu=34131", "IDU=34131,table=USR,schema=INDIRECT"),
    (
        "acc", "branch text; num integer", "branch num", "indirect",
        "num=7+branch=North West", "branch=North West+num=7,table=acc,schema=indirect",
    ),
    ("usr", "idu integer", "idu", None, "idu=1", "idu=1,table=usr"),
    ("a,b", "id integer", "id", "s", "id=1", 'id=1,table="a,b",schema=s'),
    ("t", "id integer", "id", 'a"b', "id=1", 'id=1,table=t,schema="a\\"b"'),
    ("t", "a+b text", "a+b", "s", '"a+b"=x', '"a+b"=x,table=t,schema=s'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "key", "schema", "logged", "association"), ASSOCIATIONS)
def test_an_association_is_the_canonical_key_with_table_and_schema(
    name: str, text: str, key: str, schema: str | None, logged: str, association: str
) -> None:
    cls = build({**table(name, text, ""), "primary_key": key.split()}, schema=schema).class_named(
        name
    )
    assert cls.canonical_key(logged) + cls.association_tail == association


# --- references -----------------------------------------------------------------------------------


def attribute_of(cls: ObjectClass, name: str) -> Any:
    return next(attribute for attribute in cls.attributes if attribute.name == name)


@pytest.mark.parametrize(("referential", "value_type", "value"), [
    ("value", "int", "1"),
    ("dn", "dn", "id=1,table=emp,schema=indirect"),
])  # fmt: skip
def test_a_reference_is_a_value_or_the_association_of_its_target(
    referential: str, value_type: str, value: str
) -> None:
    boss = attribute_of(build(EMP, referential=referential).class_named("emp"), "boss")
    assert (boss.value_type, boss.convert(" 01")) == (value_type, value)


def test_the_value_of_a_child_table_may_be_a_reference() -> None:
    member = attribute_of(
        build(USR, GRP, MEMBER, referential="dn").class_named("grp"), "grp_member.idu"
    )
    assert (member.value_type, member.convert("7")) == ("dn", "idu=7,table=usr,schema=indirect")


NO_REFERENCES = [
    ("to another column than the key", [("boss", "emp", "num")], "id"),
    ("of two columns", [("boss num", "emp", "id num")], "id num"),
    ("to a part of the key", [("boss", "emp", "id")], "id num"),
    ("to no class", [("boss", "elsewhere", "id")], "id"),
]


@pytest.mark.parametrize(
    ("references", "key"), [c[1:] for c in NO_REFERENCES], ids=[c[0] for c in NO_REFERENCES]
)
def test_other_foreign_keys_stay_values(references: list[tuple[str, str, str]], key: str) -> None:
    cls = build(
        table("emp", "id integer; boss integer; num integer", key, references), referential="dn"
    ).classes[0]
    assert attribute_of(cls, "boss").value_type == "int"


def test_references_of_views_stay_values() -> None:
    cls = build(
        EMP, view("v", "pk_id integer; fk__id__boss integer"), referential="dn"
    ).class_named("v")
    assert attribute_of(cls, "fk_boss").value_type == "int"


def test_a_reference_has_the_errors_of_a_key() -> None:
    target = table("t", "code text", "code")
    cls = build(
        target, table("u", "id integer; c text", "id", [("c", "t", "code")]), referential="dn"
    )
    convert = attribute_of(cls.class_named("u"), "c").convert
    assert convert("a b+c") == 'code="a b+c",table=t,schema=indirect'
    with pytest.raises(BadXmlChar):
        convert("bell\x07")
    with pytest.raises(BadValue):
        attribute_of(build(EMP, referential="dn").classes[0], "boss").convert("x")


# --- from JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"dialect": "postgresql", "schema": "s", "tables": [], "more": 1},
            "the catalog: more is not known; the known ones are ",
        ),
        ({"dialect": "postgresql", "schema": "s"}, "the catalog: tables is missing"),
        (
            {"dialect": "postgresql", "tables": [{**table("t", "a text"), "x": 1}]},
            "the catalog: tables: table 't': x is not known",
        ),
        (
            {"dialect": "postgresql", "tables": [{**table("t", "a text"), "primary_key": ["b"]}]},
            "the catalog: table 't' has no column 'b'",
        ),
        (
            {"dialect": "postgresql", "tables": [{"name": "t", "columns": columns("a text")}]},
            r"tables: table 't': kind is missing: table \| view",
        ),
    ],
)
def test_a_catalog_in_json_is_read_strictly(value: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        database_from_json(value)


ONE = {"name": "t", "kind": "table", "columns": [{"name": "a", "type": "integer"}]}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([""], "tables = .* is not allowed; legal: a list of objects"),
        ("t", 'tables = "t" is not allowed; legal: a list of objects'),
        ([{**ONE, "name": ""}], "table '': name = \"\" is not allowed; legal: a name"),
        ([{**ONE, "kind": 7}], r"table 't': kind = 7 is not allowed; legal: table \| view"),
        (
            [{**ONE, "columns": {"a": "integer"}}],
            "table 't': columns = .*; legal: a list of objects",
        ),
        (
            [{**ONE, "columns": [{"name": "a"}]}],
            "table 't': columns: column 'a': type is missing: a text",
        ),
        (
            [{**ONE, "columns": [{"name": "a", "type": 1}]}],
            "column 'a': type = 1 is not allowed; legal: a text",
        ),
        (
            [{**ONE, "columns": [{"name": "a", "type": " "}]}],
            "table 't': column 'a': a column type is empty",
        ),
        (
            [{**ONE, "columns": ONE["columns"] * 2}],
            "table 't' has the column 'a' twice",
        ),
        (
            [{**ONE, "primary_key": "a"}],
            'table .t.: primary_key = "a" is not allowed; legal: a list of names',
        ),
        ([{**ONE, "primary_key": ["a", "a"]}], "has the key column 'a' twice"),
        (
            [{**ONE, "unique_keys": ["a"]}],
            "table 't': unique_keys = .*legal: a list of lists of names",
        ),
        (
            [{**ONE, "foreign_keys": ["a"]}],
            "table 't': foreign_keys = .* is not allowed; legal: a list of objects",
        ),
        (
            [
                {
                    **ONE,
                    "foreign_keys": [{"columns": ["a"], "table": "u", "ref_columns": ["x", "y"]}],
                }
            ],
            "table 't': a foreign key has 1 column and 2 ref_columns",
        ),
        ([ONE, ONE], "the catalog has the table 't' twice"),
    ],
)
def test_a_catalog_whose_members_are_not_of_their_form_is_refused_by_name(
    tables: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        database_from_json({"dialect": "postgresql", "schema": None, "tables": tables})


def test_a_catalog_holds_types_of_any_size() -> None:
    (column,) = database_from_json(
        {
            "dialect": "postgresql",
            "tables": [{**ONE, "columns": [{"name": "a",
            "type": f"decimal({'9' * 5000},{'0' * 5000})"}]}],
        }
    ).tables[0].columns  # fmt: skip
    assert column.type.kind is Kind.INTEGER


# --- the catalogue as a file ----------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["postgresql", "oracle", "sqlite", "mariadb", "mysql"])
def test_a_catalogue_that_is_written_is_read_as_the_same_tables(dialect: str) -> None:
    """What ``eventlog catalog`` writes and ``convert`` takes."""
    kinds = {
        (parse_type(name, dialect).kind, parse_type(name, dialect).bits): parse_type(name, dialect)
        for text in TYPE_NAMES.values()
        for name in text.split(", ")
    }
    # What a database reflects: a domain, an enumeration, a type without a name.
    odd = [replace(kind, sql="hr.mood") for kind in kinds.values()]
    types = [*kinds.values(), *odd, ColumnType(Kind.INTEGER, sql="numeric(9,0)")]
    columns = tuple(Column(f"c{number}", type) for number, type in enumerate(types))
    keys = (("c0",), ("c1", "c2"))
    usr = Table("usr", "table", columns, ("c0",), (ForeignKey(("c1",), "usr", ("c0",)),), keys)
    view = Table("v", "view", columns[:1])
    written = database_to_json(Database(dialect, "hr", (usr, view)))
    again, also = database_from_json(written).tables

    def plain(table: Table) -> Table:
        return replace(
            table,
            columns=tuple(Column(one.name, replace(one.type, sql="")) for one in table.columns),
            unique_keys=tuple(sorted(table.unique_keys)),
        )

    assert plain(again) == plain(usr)
    assert plain(also) == plain(view)
