"""The directory of the files sink is one owner's alone (spec/event-log.md 10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.publisher.sinks.files import MARKER, Owner, claim
from eventlog.publisher.stream.open_source import position_of

OURS = Owner("ours/1", "the log hr.eventlog")
OTHERS = Owner("others/7", "the log pay.eventlog")


def never(_latest: int) -> int:
    raise AssertionError("the newest delivery is not to be asked for")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_directory_is_its_first_owners_from_then_on(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    for _ in range(2):
        claim(directory, OURS, never)
    assert names(directory) == [MARKER]


def test_another_owner_is_refused_with_what_to_do(tmp_path: Path) -> None:
    claim(tmp_path, OURS, never)
    with pytest.raises(ConfigError) as refused:
        claim(tmp_path, OTHERS, never)
    assert str(refused.value) == (
        f"sink directory {tmp_path} belongs to the log hr.eventlog, not to the log pay.eventlog, "
        "and the documents of both would replace one another. Name another directory; or, if "
        f"both are the same log, moved or restored, delete {tmp_path / MARKER}"
    )
    claim(tmp_path, OURS, never)
    with pytest.raises(ConfigError, match="the log or its database was created again, and the"):
        claim(tmp_path, OURS._replace(identity="another"), never)


def test_an_owner_may_be_called_otherwise_later(tmp_path: Path) -> None:
    claim(tmp_path, OURS, never)
    claim(tmp_path, OURS._replace(name="the log hr.eventlog, on its new server"), never)


def test_who_is_faster_has_it(tmp_path: Path) -> None:
    """Both have seen a directory without owner."""
    (tmp_path / "000000000001-000001.xml").touch()

    def overtaken(_latest: int) -> int:
        claim(tmp_path, OTHERS, lambda _: 1)
        return 1

    with pytest.raises(ConfigError, match=r"belongs to the log pay\.eventlog"):
        claim(tmp_path, OURS, overtaken)
    assert names(tmp_path) == [MARKER, "000000000001-000001.xml"]


@pytest.mark.parametrize("document", ["000000000012-000001.xmll", "000000000012-000128.xml"])
@pytest.mark.parametrize("marked", [False, True])
def test_documents_of_deliveries_that_are_still_to_come_are_not_the_owners(
    tmp_path: Path, document: str, marked: bool
) -> None:
    if marked:
        claim(tmp_path, OURS, never)
    (tmp_path / "000000000003-000001.xml").touch()
    (tmp_path / document).touch()
    with pytest.raises(
        ConfigError,
        match=r"documents of delivery 12, but the newest delivery of the log hr.eventlog is 11",
    ):
        claim(tmp_path, OURS, lambda _: 11)
    claim(tmp_path, OURS, lambda _: 12)
    assert MARKER in names(tmp_path)


def test_what_is_no_document_does_not_count(tmp_path: Path) -> None:
    for name in (
        "999999999999.txt",
        "x000000000012-000001.xml",
        ".000000000012-000001.xml.part",
        "notes",
    ):
        (tmp_path / name).touch()
    claim(tmp_path, OURS, never)


def test_where_there_are_no_links_a_directory_is_owned_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    claim(tmp_path, OURS, never)
    assert names(tmp_path) == [MARKER]
    with pytest.raises(ConfigError, match="belongs to"):
        claim(tmp_path, OTHERS, never)


@pytest.mark.parametrize("content", ["", "[]", '{"identity": "ours/1"}', "\0"])
def test_a_marker_that_contains_nothing_is_not_guessed_at(tmp_path: Path, content: str) -> None:
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(ConfigError, match="does not name the directory's owner"):
        claim(tmp_path, OURS, never)


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            ConfigError, match=r"sink directory .*: (File exists|Not a directory); name a directory"
        ):
            claim(place, OURS, never)


# Sources that are not a log: their deliveries are numbered with their position.


@pytest.fixture
def follow(tmp_path: Path) -> Callable[[str], None]:
    """A life of a publisher with its position in this file of SQLite, up to its first document."""

    def live(position: str) -> None:
        flags = {
            "source.type": "gbase",
            "source.position_url": f"sqlite:///{tmp_path / position}",
            "sink.type": "files",
            "sink.directory": str(tmp_path / "documents"),
        }
        config = load(None, {}, flags)
        with position_of(config)() as held:
            delivery = held.load().delivery_no + 1
            held.save(held.load()._replace(delivery_no=delivery))
            (tmp_path / "documents" / f"{delivery:012d}-000001.xmll").touch()

    return live


def test_a_source_has_its_directory_alone(tmp_path: Path, follow: Callable[[str], None]) -> None:
    follow("a.db")
    follow("a.db")
    with pytest.raises(
        ConfigError,
        match=r"belongs to the source gbase with its position in .*/a\.db', not to .*/b\.",
    ):
        follow("b.db")
    follow("a.db")
    assert names(tmp_path / "documents") == [
        MARKER,
        *(f"{delivery:012d}-000001.xmll" for delivery in (1, 2, 3)),
    ]


def test_a_source_that_begins_again_needs_a_new_directory(
    tmp_path: Path, follow: Callable[[str], None]
) -> None:
    follow("a.db")
    (tmp_path / "a.db").unlink()
    with pytest.raises(ConfigError, match=r"documents of delivery 1, but .* is 0"):
        follow("a.db")
    (tmp_path / "documents" / "000000000001-000001.xmll").unlink()
    follow("a.db")


def test_a_position_is_known_by_its_database_however_that_is_named(tmp_path: Path) -> None:
    """Files of URLs have one path in many containers."""

    def claimed(url: str, **settings: str) -> None:
        (tmp_path / "url").write_text(url)
        flags = {
            "source.type": "linter",
            "sink.type": "files",
            "sink.directory": str(tmp_path / "documents"),
            **{f"source.{name}": value for name, value in settings.items()},
        }
        config = load(None, {}, flags)
        with position_of(config)():
            pass

    of_file = {"position_url_file": str(tmp_path / "url")}
    first, second = (f"sqlite:///{tmp_path / name}" for name in ("one.db", "two.db"))
    claimed(first, **of_file)
    claimed("", position_url=first)
    with pytest.raises(
        ConfigError, match=r"belongs to the source linter .*one\.db', not to .*two\.db'"
    ):
        claimed(second, **of_file)
