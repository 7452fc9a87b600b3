"""Directories as tar archives, and back. Blocking: async callers hand it to a thread."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from ._errors import ProtocolError

MOST_ENTRIES = 100_000
"""Files and directories of an archive, as the session has it."""


def spool() -> IO[bytes]:
    """Where an archive is kept until it is whole: a file without a name."""
    return tempfile.TemporaryFile(prefix="glovebox-")


def pack(directory: str | os.PathLike[str], *, skip_links: bool) -> IO[bytes]:
    """An archive of the files and directories below a directory. Who owns them stays untold."""
    top = Path(directory)
    if not top.is_dir():
        raise NotADirectoryError(f"{top} is no directory")
    archive = spool()
    try:
        # Each name of a file that has several is a file of its own there.
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as tar:
            for at, directories, files in os.walk(top):
                for name in sorted((*directories, *files)):
                    _add(tar, top, Path(at, name), skip_links=skip_links)
                directories[:] = sorted(name for name in directories if not Path(at, name).is_symlink())
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    return archive


def _add(tar: tarfile.TarFile, top: Path, path: Path, *, skip_links: bool) -> None:
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        if skip_links:
            return
        raise ValueError(
            f"{path} is a link or no ordinary file, which a sandbox does not take; remove it, or say skip_links=True"
        )
    member = tar.gettarinfo(path, arcname=path.relative_to(top).as_posix())
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    # Fractions of a second would cost a header of their own for each file.
    member.mtime = int(member.mtime)
    if member.isdir():
        tar.addfile(member)
        return
    with path.open("rb") as file:
        tar.addfile(member, file)


def unpack(archive: IO[bytes], directory: str | os.PathLike[str]) -> None:
    """What an archive holds, below a directory, which is made if it is missing. Files and directories alone: whatever the archive
    says, nothing lies outside of it, and nothing is a link or has a special mode."""
    top = Path(directory)
    top.mkdir(parents=True, exist_ok=True)
    archive.seek(0)
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for count, member in enumerate(tar):
                if count >= MOST_ENTRIES or not (member.isreg() or member.isdir()):
                    raise ProtocolError(
                        "the archive has an entry that is no file and no directory, or too many; report this"
                    )
                tar.extract(member, top, filter="data")
    except tarfile.TarError as error:
        raise ProtocolError(f"the archive is none, or has an entry that leads out: {type(error).__name__}") from None
