"""The files of an Iceberg table that a live copy writes: the removal of files that are not needed
any more, and the compaction of small files.

A commit that expires snapshots records their manifest lists in a property of the table. After that
commit the files of the snapshots are removed, the manifest lists last, and a further commit removes
the property. If the driver is killed before the property is removed, the next removal finds the
property and continues. No property records the files of a killed commit: these files are found in
the folders of the table, after a day.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from eventlog.spark.copies.copy_target import MANY_FILES

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_REMOVING: Final = "eventlog.removing"
"""The property with the manifest lists of expired snapshots whose files may still exist."""
SMALL_BYTES: Final = 16 * 2**20
"""The size in bytes below which a file is compacted."""


def is_removing(table: Table) -> bool:
    """Return True if files of expired snapshots may still exist."""
    return _REMOVING in table.properties


def expire(table: Table, before: datetime) -> bool:
    """Expire the snapshots that were replaced before a time, and record them; return False if there
    are no such snapshots. A snapshot with a tag or a branch stays.
    """
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    snapshots = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [
        one
        for one, following in pairwise(snapshots)
        # A reader may have started on a snapshot as long as it was the newest one.
        if following.timestamp_ms < before.timestamp() * 1000 and one.snapshot_id not in named
    ]
    if not old:
        return False
    with table.transaction() as transaction:
        with ExpireSnapshots(transaction) as expired:
            for one in old:
                expired.by_id(one.snapshot_id)
        lists = [one.manifest_list for one in old if one.manifest_list]
        transaction.set_properties({_REMOVING: json.dumps(lists)})
    return True


def remove_expired(table: Table) -> None:
    """Remove the files of the expired snapshots that the table has recorded, except files that a
    snapshot of the table needs. Missing files were already removed.
    """
    lists = json.loads(table.properties[_REMOVING])
    kept = _manifests(table, _ends(table))
    doomed = {
        one.manifest_path: one
        for path in lists
        for one in _manifests_in(table, path)
        if one.manifest_path not in kept
    }
    # A manifest is removed after its files, and a list after its manifests, so that the files that
    # a killed removal left can still be found.
    _remove(table, _data_files(table, doomed.values()) - _data_files(table, kept.values()))
    _remove(table, doomed)
    _remove(table, lists)
    with table.transaction() as transaction:
        transaction.remove_properties(_REMOVING)


def remove_abandoned(table: Table, before: datetime) -> None:
    """Remove the files of writers that were killed before their commit: data files and manifests
    that were written before a time and that no snapshot of the table has.

    Nothing is removed if the files cannot be listed, or may share folders with other tables.
    """
    old = _files_before(table, before)
    # A few manifests show that nearly all files are needed. All manifests are read only if other
    # files are left.
    for snapshots in (_ends(table), table.snapshots()):
        if old:
            manifests = _manifests(table, snapshots)
            lists = [one.manifest_list for one in table.snapshots() if one.manifest_list]
            for needed in (*lists, *manifests, *_data_files(table, manifests.values())):
                old.pop(needed.rpartition("/")[2], None)
    _remove(table, old.values())


def _files_before(table: Table, moment: datetime) -> dict[str, str]:
    """Return the data files and manifests that are older than a time, in the folders of a table.

    The keys are the file names, which are unique: other writers may spell the location of a file in
    another way (``s3a://``).
    """
    from pyarrow.fs import FileSelector
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io, place = table.io, table.location().rstrip("/")
    shared = {"write.data.path", "write.metadata.path"} & table.properties.keys()
    if shared or not isinstance(io, PyArrowFileIO):
        return {}
    found: dict[str, str] = {}
    for folder in (f"{place}/data", f"{place}/metadata"):
        scheme, netloc, path = io.parse_location(folder, io.properties)
        selector = FileSelector(path, allow_not_found=True, recursive=True)
        for one in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
            if one.extension in ("parquet", "avro") and one.mtime and one.mtime < moment:
                found[one.base_name] = folder + one.path.removeprefix(path)
    return found


def compact(table: Table, schema: pa.Schema) -> None:
    """Write the rows of small files to one file in one commit, if there are many of them.

    ``schema`` has the columns of the table. The properties of the table, such as the number of the
    last batch, do not change.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    now = table.current_snapshot()
    if now is None or now.summary is None:
        return
    if int(now.summary["total-data-files"] or 0) < MANY_FILES:
        return
    files = table.scan().plan_files()
    small = [one for one in files if one.file.file_size_in_bytes < SMALL_BYTES]
    if len(small) < MANY_FILES:
        return
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    rows = (part.cast(schema) for part in scan.to_record_batches(small))
    with table.transaction() as transaction:
        with transaction.update_snapshot().overwrite() as replaced:
            for one in small:
                replaced.delete_data_file(one.file)
        transaction.append(pa.RecordBatchReader.from_batches(schema, rows))


def _ends(table: Table) -> list[Snapshot]:
    """Return the snapshots whose parent is expired, and the snapshots with a tag or a branch, whose
    child may be expired.

    A snapshot inherits its files from its parent. So if any snapshot has a file of an expired
    snapshot, one of the returned snapshots has this file.
    """
    there = {one.snapshot_id for one in table.snapshots()}
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    return [
        one
        for one in table.snapshots()
        if one.parent_snapshot_id not in there or one.snapshot_id in named
    ]


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    """Return the manifests of snapshots by their paths."""
    return {one.manifest_path: one for each in snapshots for one in each.manifests(table.io)}


def _manifests_in(table: Table, path: str) -> list[ManifestFile]:
    """Return the manifests of a list; none if the list was removed."""
    from pyiceberg.manifest import read_manifest_list

    with suppress(FileNotFoundError):
        return list(read_manifest_list(table.io.new_input(path)))
    return []


def _data_files(table: Table, manifests: Iterable[ManifestFile]) -> set[str]:
    """Return the data files of manifests; manifests that were removed are left out."""
    found = set[str]()
    for one in manifests:
        with suppress(FileNotFoundError):
            entries = one.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {entry.data_file.file_path for entry in entries}
    return found


def _remove(table: Table, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            table.io.delete(path)
