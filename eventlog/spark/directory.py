"""An output directory that appears whole, names its owner, and can be taken over by a later run.

``_STARTED`` is written first and ``_SUCCESS`` last; in between the directory is not complete.
``job_directory`` checks whether a run may begin in a directory, and removes what a failed run has
left. Each file gets its final name only when it is whole. ``JobDirectory.finish`` verifies every
file and writes the manifest, then ``_SUCCESS``.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from re import Pattern
from typing import Any, Final, Self

import pyarrow as pa
from pyarrow import fs

from eventlog.core.clock import random_hex
from eventlog.errors import ConfigError, EventlogError
from eventlog.files.atomic import sync_path

TEMPORARY: Final = "_temporary"
"""The folder of incomplete files. Spark and Hadoop ignore this folder because its name begins with
an underscore.
"""

_STARTED: Final = "_STARTED"
SUCCESS: Final = "_SUCCESS"
MANIFEST: Final = "_manifest.json"
_MANIFEST_FORMAT: Final = 1


_FRAGMENT: Final = 2**20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""Arrow's file systems in which a file appears whole when it is closed, and which have neither
folders nor a cheap rename.
"""

_USER: Final = re.compile(r"(?<=://)[^/@?#]*:[^/?#]*(?=@)")
_SECRET: Final = re.compile(
    r"([?&][^=&#]*(?:key|secret|token|password|sig|sas)[^=&#]*=)[^&#]*", re.IGNORECASE
)


def masked(location: str) -> str:
    """Return a path or URI without secrets: keys before ``@``, and secrets in the query."""
    return _SECRET.sub(r"\1***", _USER.sub("***", location)) if "://" in location else location


class FileStream:
    """A stream that writes a file, and computes its size and checksum.

    ``location`` is the directory, for messages. Writing raises EventlogError if there is no space
    left.
    """

    def __init__(self, stream: Any, location: str) -> None:
        self._stream, self._location = stream, location
        self._sum = sha256()
        self._bytes = 0

    @property
    def sha256(self) -> str:
        """The SHA-256 of the written content, in hexadecimal digits."""
        return self._sum.hexdigest()

    @property
    def closed(self) -> bool:
        """True if the stream is closed."""
        return bool(self._stream.closed)

    def write(self, content: Any) -> int:
        """Write bytes, and return their number."""
        with _refuse_full(self._location):
            self._stream.write(content)
        self._sum.update(content)
        self._bytes += len(content)
        return len(content)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._bytes

    def flush(self) -> None:
        """Pass the written bytes on to the file system."""
        with _refuse_full(self._location):
            self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        with _refuse_full(self._location):
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _refuse_full(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise EventlogError(f"no space is left in {location}. Free some space") from error
        raise


class Directory:
    """The files of a local path or a URI (``s3://``, ``gs://``, ``abfss://``, ``hdfs://``). The
    location is the same for driver and workers. Raises ConfigError if the location cannot be used.
    """

    def __init__(self, location: str) -> None:
        try:
            if "://" in location:
                self._fs, self.path = fs.FileSystem.from_uri(location)
            else:
                self._fs, self.path = fs.LocalFileSystem(), os.path.abspath(location)  # noqa: PTH100 - not resolved
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).replace(location, masked(location))
            what = f"--out {masked(location)}: {reason}"
            raise ConfigError(f"{what}. Give a path or a URI such as s3://bucket/prefix") from None
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)
        self.location = masked(location)
        """The directory as shown in messages: keys and passwords of a URI are masked."""
        self.uri = self.path if self.is_local else location
        """The directory as a worker opens it."""
        self._is_object_store = self._fs.type_name in _OBJECT_STORES

    def within(self, name: str) -> str:
        """Return the path of a name in the directory; of the directory itself if name is empty."""
        return f"{self.path}/{name}" if name else self.path

    def names(self) -> list[str]:
        """Return the files and folders at the first level; none if the directory does not exist."""
        return [
            info.base_name
            for info in self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        ]

    def sizes(self, names: Collection[str]) -> dict[str, int | None]:
        """Return the existing files and folders among these names, with the sizes of files."""
        infos = self._fs.get_file_info(list(map(self.within, names)))
        there = zip(names, infos, strict=True)
        return {
            name: info.size if info.is_file else None
            for name, info in there
            if info.type != fs.FileType.NotFound
        }

    def exists(self, name: str) -> bool:
        """Return True if a file or folder of this name exists."""
        return bool(self.sizes([name]))

    def refuse_without_bucket(self) -> None:
        """Raise ConfigError if the directory would be in a bucket that does not exist."""
        bucket, *_ = self.path.split("/")
        is_missing = False
        if self._is_object_store:
            # A user without the right to see the bucket may still write to it.
            with suppress(OSError):
                is_missing = self._fs.get_file_info(bucket).type == fs.FileType.NotFound
        if is_missing:
            raise ConfigError(f"{self.location}: there is no bucket {bucket}. Create it first")

    def make(self, name: str = "") -> None:
        """Create the directory, or a folder in it, with the folders above it.

        An object store has no folders.
        """
        if not self._is_object_store:
            with _refuse_full(self.location):
                self._fs.create_dir(self.within(name), recursive=True)

    def make_writable(self) -> None:
        """Create the directory, and try to write to it.

        Raises ConfigError if no file can be created in the directory.
        """
        attempt = f"{TEMPORARY}-{random_hex(16)}"
        try:
            self.make()
            with self.open(attempt):
                pass
            self.delete(attempt)
        except OSError as error:
            raise ConfigError(
                f"--out {self.location} cannot be written: {masked(str(error))}. Check its name "
                "and your rights"
            ) from None

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises OSError."""
        with self._fs.open_input_stream(self.within(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, whole or not at all. When ``write`` returns, the file is durable."""
        with self.new_file(name, f"{TEMPORARY}-") as stream:
            stream.write(content)

    @contextmanager
    def new_file(self, name: str, temporary: str = f"{TEMPORARY}/") -> Iterator[FileStream]:
        """Yield a stream to a file that gets the name ``name`` when the block ends. Until the block
        ends, the name of the file begins with ``temporary``.
        """
        temporary = self.until_settled(name, temporary)
        with self.open(temporary) as stream:
            yield stream
        self.settle(temporary, name)

    def until_settled(self, name: str, temporary: str = f"{TEMPORARY}/") -> str:
        """Return the name that a file has while it is written. On an object store this name is the
        file's final name, since the file appears only when it is closed.
        """
        return name if self._is_object_store else f"{temporary}{random_hex(16)}"

    def open(self, name: str) -> FileStream:
        """Return a stream to a new file. Raises ConfigError if its folder is missing, for example
        because workers have another disk.
        """
        try:
            with _refuse_full(self.location):
                return FileStream(self._fs.open_output_stream(self.within(name)), self.location)
        except FileNotFoundError:
            raise ConfigError(
                f"{self.within(name)} cannot be written: its folder does not exist. Give a "
                f"directory in place of {self.location} that the driver and all workers reach "
                "under the same name"
            ) from None

    def settle(self, temporary: str, name: str) -> None:
        """Rename a finished file to its final name.

        On a local disk this function makes the content durable; ``sync`` makes the name durable.
        """
        with _refuse_full(self.location):
            if self.is_local:
                sync_path(self.within(temporary))
            if temporary != name:
                self._fs.move(self.within(temporary), self.within(name))

    def sync(self, name: str = "") -> None:
        """Make the names in the directory, or in a folder of it, durable."""
        if self.is_local:
            sync_path(self.within(name))

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content, if it exists."""
        sizes = self.sizes([name])
        if name not in sizes:
            return
        if sizes[name] is not None:
            self._fs.delete_file(self.within(name))
        else:
            self._fs.delete_dir(self.within(name))
        if self._s3 is not None:
            from botocore.exceptions import BotoCoreError, ClientError

            bucket, *folders, _ = self.within(name).split("/")
            with suppress(BotoCoreError, ClientError):  # an additional empty object does no harm
                self._s3.delete_object(Bucket=bucket, Key="/".join([*folders, ""]))

    @cached_property
    def _s3(self) -> Any:
        """boto3's client of the bucket, None for other stores and without boto3.

        When Arrow deletes an object, it creates an empty object with the name of the folder and a
        slash (apache/arrow#36275). Arrow cannot delete this object; boto3 can.
        """
        if self._fs.type_name != "s3":
            return None
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            return None
        (_, (options,)) = self._fs.__reduce__()  # Arrow's values from the URI and the environment
        endpoint = options["endpoint_override"]
        if endpoint and "://" not in endpoint:
            endpoint = f"{options['scheme']}://{endpoint}"
        return boto3.client(
            "s3",
            region_name=options["region"] or None,
            endpoint_url=endpoint or None,
            aws_access_key_id=options["access_key"] or None,
            aws_secret_access_key=options["secret_key"] or None,
            aws_session_token=options["session_token"] or None,
            config=Config(s3={"addressing_style": "path"}) if endpoint else None,
        )

    def sha256(self, name: str) -> str:
        """Return a file's SHA-256, in hexadecimal digits. Raises OSError."""
        found = sha256()
        with self._fs.open_input_stream(self.within(name)) as stream:
            while fragment := stream.read(_FRAGMENT):
                found.update(fragment)
        return found.hexdigest()


# --- resume, begin, finish ------------------------------------------------------------------------


JobRecord = Mapping[str, Any]
"""The content of ``_STARTED`` or of the manifest."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The job that owns a directory."""

    job: str
    """The kind of job, for messages."""
    identity: Mapping[str, str]
    """The identity, which is recorded in ``_STARTED`` and the manifest. Only a job with the same
    identity may resume in the directory.
    """
    describe: Callable[[JobRecord], str]
    """A function that describes, for messages, the content of a directory with another identity."""
    names: Pattern[str] | None = None
    """The pattern for names of the job's files that a run does not list as outputs."""

    def is_own(self, name: str) -> bool:
        """Return True if a file or folder belongs to the job, whatever outputs a run lists."""
        is_of_protocol = name in (_STARTED, SUCCESS, MANIFEST) or name.startswith(TEMPORARY)
        return is_of_protocol or (self.names is not None and self.names.fullmatch(name) is not None)


def resume(directory: Directory, owner: Owner, outputs: Collection[str] = ()) -> JobRecord | None:
    """Return the manifest of a finished directory, None if a run may begin in the directory.
    ``outputs`` are the files that the run would write.

    Raises ConfigError for a directory of another owner or another job.
    """
    location = directory.location
    try:
        is_file = directory.sizes([""]).get("") is not None
        names = directory.names()
    except OSError as error:
        raise ConfigError(
            f"{location} cannot be reached: {masked(str(error))}. Check its name and your rights"
        ) from None
    if is_file:
        raise ConfigError(f"{location} is a file. Give a directory that is empty or does not exist")
    if not names:
        directory.refuse_without_bucket()
    # A run was killed before it could record the owner.
    if all(name.startswith(TEMPORARY) for name in names):
        return None
    recorded = _recorded(directory, names)
    if not owner.identity.keys() <= recorded.keys():
        raise ConfigError(
            f"{location} is not empty and not the output of a {owner.job}; nothing in it was "
            "changed. Give a directory that is empty or does not exist"
        )
    if {name: recorded[name] for name in owner.identity} != owner.identity:
        raise ConfigError(f"{location} contains {owner.describe(recorded)}. Give another directory")
    if _is_finished(names):
        if recorded.get("manifest_format") != _MANIFEST_FORMAT:
            raise ConfigError(
                f"{location}/{MANIFEST} is from another version of eventlog. Give another directory"
            )
        return recorded
    foreign = sorted(
        name
        for name in names
        if not owner.is_own(name) and name not in {*outputs, *_outputs(recorded)}
    )
    if foreign:
        raise ConfigError(
            f"{location} is the output of an unfinished {owner.job}, but contains {foreign[0]}, "
            "which the job did not write; nothing was changed. Move it to another place, or give "
            "another directory"
        )
    return None


@dataclass(slots=True)
class JobDirectory:
    """A directory in which a job works. ``job_directory`` opens the directory."""

    directory: Directory
    owner: Owner
    known: JobRecord | None = None
    """The manifest of a finished directory, None if the job has not finished there."""
    is_begun: bool = False
    """True from the beginning of the run until it is about to finish."""

    def begin(self, outputs: Collection[str], job: str = "") -> None:
        """Record the owner of the directory, and empty it: the files of an unfinished run are
        deleted. A finished directory becomes unfinished, without a change of its content.

        ``outputs`` are the files that will be written. ``job`` is the name of the run, which
        ``job_in`` returns.
        """
        directory, self.is_begun = self.directory, True
        if self.known is not None:
            self._start(outputs, job)
            directory.delete(SUCCESS)
        else:
            directory.make()
            names = directory.names()
            self._start({*outputs, *_outputs(_recorded(directory, names))}, job)
            for name in sorted(names):
                if name != _STARTED:
                    directory.delete(name)
        directory.make(TEMPORARY)

    def finish(
        self,
        manifest: JobRecord,
        files: Mapping[str, int | None],
        before_success: Callable[[str], None] | None = None,
    ) -> None:
        """Verify that every file or folder exists, write the manifest, and then ``_SUCCESS``.
        Raises ConfigError.

        ``files`` has the names of the files and folders, with the known sizes. ``before_success``
        is called with the SHA-256 of the manifest when only ``_SUCCESS`` is missing.
        """
        directory, self.is_begun = self.directory, False
        there = directory.sizes(files)
        for name, size in files.items():
            if name not in there or (size is not None and there[name] != size):
                raise ConfigError(
                    f"{name} is missing in {directory.location}, or has another size than when it "
                    "was written. Give a directory that the driver and all workers reach under the "
                    "same name"
                )
        directory.delete(TEMPORARY)
        folders = sorted(_folders_of(files))
        for folder in folders:
            directory.sync(folder)
        outputs = [name for name in folders if "/" not in name and not self.owner.is_own(name)]
        identity = {"manifest_format": _MANIFEST_FORMAT, **self.owner.identity}
        content = (
            json.dumps({**identity, **manifest, "folders": outputs}, indent=1) + "\n"
        ).encode()
        directory.write(MANIFEST, content)
        directory.sync()
        if before_success is not None:
            before_success(sha256(content).hexdigest())
        directory.write(SUCCESS, b"")
        directory.sync()
        directory.delete(_STARTED)

    def _start(self, outputs: Collection[str], job: str) -> None:
        value = {**self.owner.identity, "job": job, "outputs": sorted(outputs)}
        self.directory.write(_STARTED, json.dumps(value).encode())


@contextmanager
def job_directory(
    directory: Directory, owner: Owner, outputs: Collection[str] = ()
) -> Iterator[JobDirectory]:
    """Yield the directory for a job, which may ``begin`` and ``finish`` in it while the block runs.

    If the job fails, its temporary files, which may be as large as the output, are deleted. If the
    job fails with ConfigError, a new directory is emptied, so that another job may use the
    directory. Raises ConfigError as ``resume`` does.
    """
    opened = JobDirectory(directory, owner, resume(directory, owner, outputs))
    try:
        yield opened
    except BaseException as error:
        is_new = isinstance(error, ConfigError) and opened.known is None
        with suppress(OSError, EventlogError):
            for name in sorted(directory.names(), key=_STARTED.__eq__) if opened.is_begun else ():
                if is_new or name == TEMPORARY:
                    directory.delete(name)
        raise


def job_in(directory: Directory) -> str:
    """Return the name of the run that began the directory; empty if none did."""
    return str(_recorded(directory, directory.names()).get("job", ""))


def _is_finished(names: Collection[str]) -> bool:
    return MANIFEST in names and SUCCESS in names


def _recorded(directory: Directory, names: Collection[str]) -> JobRecord:
    """Return the content of ``_STARTED`` or of the manifest; empty if the directory has neither."""
    name = _STARTED if _STARTED in names and not _is_finished(names) else MANIFEST
    if name not in names:
        return {}
    try:
        value = json.loads(directory.read(name))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{directory.location}/{name} cannot be read ({error}). Give another directory"
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{directory.location}/{name} is damaged. Give another directory")
    return value


def _outputs(recorded: JobRecord) -> list[str]:
    """Return the outputs that ``_STARTED`` or the manifest lists."""
    return [*recorded.get("outputs", ()), *recorded.get("folders", ())]


def _folders_of(files: Iterable[str]) -> set[str]:
    """Return the folders of files, with the folders above them."""
    folders = set()
    for name in files:
        *inside, _ = name.split("/")
        folders |= {"/".join(inside[:depth]) for depth in range(1, len(inside) + 1)}
    return folders
