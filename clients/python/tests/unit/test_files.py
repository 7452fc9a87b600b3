"""Files, one by one and as trees."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from fake import Answer, Fake, problem

import glovebox
from glovebox._trees import unpack


def test_a_file_goes_in_and_out(sandbox: Any, fake: Fake) -> None:
    sandbox.files.write("a/b c+ä.txt", "text", mode=0o755, parents=True, replace=False, timeout="5s")
    assert fake.said[-1].query == {
        "path": "a/b c+ä.txt",
        "mode": "755",
        "parents": "true",
        "replace": "false",
        "timeout": "5s",
    }
    assert sandbox.files.read("a/b c+ä.txt") == b"text"
    done = sandbox.files.write("big", io.BytesIO(b"x" * 200_000))
    assert done.bytes == 200_000
    assert sandbox.files.stat("big").size == 200_000
    assert [entry.path for entry in sandbox.files.list().entries] == ["a", "big"]
    sandbox.files.delete("big")
    with pytest.raises(glovebox.NoSuchFile):
        sandbox.files.read("big")
    with pytest.raises(glovebox.InvalidRequest) as caught:
        sandbox.files.read("../x")
    assert caught.value.field == "path"


def test_more_than_is_wanted_is_not_read(sandbox: Any, fake: Fake) -> None:
    (fake.workspace / "big").write_bytes(b"x" * 1000)
    with pytest.raises(glovebox.ProtocolError, match="more than 999"):
        sandbox.files.read("big", max_bytes=999)
    with pytest.raises(glovebox.ProtocolError, match="max_bytes"):
        list(sandbox.files.download_archive(max_bytes=999))


def test_a_file_is_sent_again_from_where_it_stood(sandbox: Any, fake: Fake) -> None:
    fake.instead = [problem("SandboxBusy", 429, Retry_After="0")]
    file = io.BytesIO(b"not this: this")
    file.seek(10)
    sandbox.files.write("a", file)
    assert (fake.workspace / "a").read_bytes() == b"this"
    assert [said.body for said in fake.said] == [b"this", b"this"]


def test_a_pipe_is_sent_once(sandbox: Any, fake: Fake) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    fake.instead = [problem("SandboxBusy", 429, Retry_After="0")]
    with pytest.raises(glovebox.Busy):
        sandbox.files.write("a", Pipe(b"text"))
    assert len(fake.said) == 1


def test_a_write_whose_answer_is_lost_is_not_sent_again(sandbox: Any, fake: Fake) -> None:
    fake.instead = [Answer(None)]
    with pytest.raises(glovebox.ConnectionLost):
        sandbox.files.write("a", b"text")
    fake.instead = [Answer(None)]
    assert sandbox.files.list().entries == []


def test_a_file_of_text_is_refused(sandbox: Any) -> None:
    with pytest.raises(TypeError, match="binary"):
        sandbox.files.write("a", io.StringIO("text"))
    with pytest.raises(TypeError, match="expected bytes"):
        sandbox.files.write("a", 5)


def test_a_tree_goes_in_and_out(sandbox: Any, fake: Fake, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "sub" / ("long" * 40)).write_bytes(b"\0" * 70_000)
    script = tree / "ä.sh"
    script.write_text("echo")
    script.chmod(0o755)
    os.link(script, tree / "same.sh")
    sandbox.files.upload_dir(tree, "project")
    with tarfile.open(fileobj=io.BytesIO(fake.said[-1].body)) as tar:
        assert all(one.isreg() or one.isdir() for one in tar)
        assert {(one.uid, one.uname) for one in tar} == {(0, "")}
    back = tmp_path / "back"
    sandbox.files.download_dir("project", back)
    assert _tree(back) == _tree(tree)
    assert (back / "ä.sh").stat().st_mode & 0o777 == 0o755


def test_links_are_named_or_left_out(sandbox: Any, fake: Fake, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("a")
    (tree / "link").symlink_to("/etc")
    with pytest.raises(ValueError, match=r"link.*skip_links"):
        sandbox.files.upload_dir(tree)
    assert not fake.said
    sandbox.files.upload_dir(tree, skip_links=True)
    assert [one.name for one in fake.workspace.iterdir()] == ["file"]
    with pytest.raises(NotADirectoryError):
        sandbox.files.upload_dir(tree / "file")


def test_a_download_that_breaks_off_writes_nothing(sandbox: Any, fake: Fake, tmp_path: Path) -> None:
    fake.instead = [Answer(200, b"x" * 512, cut=True)]
    with pytest.raises(glovebox.ConnectionLost):
        sandbox.files.download_dir("", tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "member",
    [
        {"name": "../out"},
        {"name": "in/../../out"},
        {"name": "link", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"name": "link", "type": tarfile.LNKTYPE, "linkname": "../out"},
        {"name": "pipe", "type": tarfile.FIFOTYPE},
    ],
)
def test_nothing_in_an_archive_leads_out(tmp_path: Path, member: dict[str, Any]) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo(member["name"])
        info.type = member.get("type", tarfile.REGTYPE)
        info.linkname = member.get("linkname", "")
        tar.addfile(info)
    with pytest.raises(glovebox.ProtocolError):
        unpack(archive, tmp_path / "in")
    assert _tree(tmp_path) == {"in": None}


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(glovebox.ProtocolError):
        unpack(io.BytesIO(b"x" * 1024), tmp_path / "in")


def _tree(top: Path) -> dict[str, bytes | None]:
    return {one.relative_to(top).as_posix(): one.read_bytes() if one.is_file() else None for one in top.rglob("*")}
