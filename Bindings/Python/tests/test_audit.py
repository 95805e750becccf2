"""``python -m shale audit``, and the reader of pickles that it shares with ``convert``."""

from __future__ import annotations

import collections
import decimal
import json
import os
import pickle
import pickletools
import random
import sqlite3
import struct
import uuid
import zoneinfo
from contextlib import closing
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from old_diskcache import make, open_in_wal

from shale.__main__ import main
from shale.adapters.diskcache import Cache
from shale.adapters.diskcache import _pickles as pickles


class Runs:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("echo ran",)


class Plain:
    """An object of a program's class."""


ZONE = timezone(timedelta(hours=2))
VALUES: list[Any] = [
    None, True, False, 0, 255, 256, 70_000, -5, 2**40, 2**70, -(2**70), 1.5, float("inf"),
    "a", "ä\ud800x\n'", b"", b"x" * 300, "y" * 300, "z" * 70_000, bytearray(), bytearray(b"abc"),
    [], [1, [2]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"a": {"b": [None]}}, set(),
    {1, "x"}, frozenset(), frozenset({3, ("x",)}), collections.OrderedDict(b=1, a=[2]),
    datetime(2020, 1, 2, 3, 4, 5, 6), datetime(2020, 1, 2, tzinfo=timezone.utc),
    datetime(2020, 1, 2, tzinfo=ZONE, fold=1), date(1, 2, 3), time(1, 2, 3, 4, fold=1),
    time(1, tzinfo=ZONE), timedelta(-1, 5, 6), decimal.Decimal("1.50"), decimal.Decimal("NaN"),
    [{"a": number, "b": "text"} for number in range(2000)], {each: str(each) for each in range(99)},
]  # fmt: skip


def built(data: bytes) -> Any:
    found = pickles.read(data)
    assert found.built, found
    return found.value


class TestPickles:
    @pytest.mark.parametrize("protocol", range(6))
    def test_every_value_of_shale_is_read(self, protocol: int) -> None:
        values = [*VALUES]
        if protocol >= 2:
            values.append(uuid.UUID(int=7))
        if protocol >= 4:
            zone = zoneinfo.ZoneInfo("Europe/Berlin")
            values.append(datetime(2020, 1, 2, tzinfo=zone))
        for value in values:
            data = pickle.dumps(value, protocol)
            for each in (data, pickletools.optimize(data)):
                found = built(each)
                assert type(found) is type(value)
                assert repr(found) == repr(pickle.loads(each))

    @pytest.mark.parametrize("protocol", range(6))
    def test_one_that_is_cut_off_is_damaged(self, protocol: int) -> None:
        for value in VALUES[:-2]:
            data = pickle.dumps(value, protocol)
            for size in range(0, len(data), 1 + len(data) // 50):
                assert pickles.read(data[:size]).kind == "damaged", value

    @pytest.mark.parametrize("protocol", range(6))
    def test_names_are_found_and_nothing_runs(
        self, protocol: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        value = [Runs(), {"k": Plain()}, collections.Counter("ab"), datetime(2020, 1, 1)]
        found = pickles.read(pickle.dumps(value, protocol))
        assert (found.kind, found.value) == ("classes", None)
        module = os.system.__module__
        assert {f"{module}.system", f"{__name__}.Plain", "collections.Counter"} <= {*found.names}
        assert found.data_names == ["datetime.datetime"]
        assert capfd.readouterr().out == ""

    @pytest.mark.parametrize(
        ("data", "name"),
        [
            (b"cos\nsystem\n(S'x'\ntR.", "os.system"),
            (b"(cos\nsystem\nS'x'\no.", "os.system"),
            (b"(S'x'\nios\nsystem\n.", "os.system"),
            # Names from the memo, and from text that takes part in several names.
            (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x940h\x00h\x01\x93)R.", "os.system"),
            (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", "builtins.eval"),
            (b"\x80\x02c__builtin__\neval\nU\x011\x85R.", "builtins.eval"),
            (b"\x80\x04cdatetime\ndatetime\n)\x81}b.", "datetime.datetime"),
            (b"\x80\x04cbuiltins\ngetattr\ncbuiltins\nset\n\x8c\x03pop\x86R.", "builtins.getattr"),
            (b"\x80\x04cos\nsystem\n)R\x8c\x01x\x93.", "(a name that it computes)"),
            (b"\x82\x01.", "(an extension code)"),
            (b"Px\n.", "(a persistent id)"),
            (b"NQ.", "(a persistent id)"),
            # After what is not built, further names are found.
            (b"\x80\x04c__main__\nA\n)\x81}b0cos\nsystem\n)R.", "os.system"),
            (b"cos\nsystem\n)R", "os.system"),
        ],
    )
    def test_names_by_every_opcode(self, data: bytes, name: str) -> None:
        found = pickles.read(data)
        assert found.kind == "classes"
        assert name in found.names

    @pytest.mark.parametrize(
        "data",
        [
            b"cdatetime\ndate\n(S'abcd'\ntR.",
            b"cdatetime\ndate\n(J\xff\xff\xff\xfftR.",
            b"\x80\x03cdatetime\ndate\nC\x04\x00\x00\x00\x00\x85R.",
            b"\x80\x03cdatetime\ndatetime\nC\x0a\x07\xe4\x01\x01\xff\x00\x00\x00\x00\x00\x85R.",
            b"\x80\x03cdatetime\ndatetime\nC\x0a\x07\xe4\x01\x01\x00\x00\x00\x00\x00\x00K\x01\x86R.",
            b"\x80\x04cuuid\nUUID\n)\x81}\x8c\x03intJ\xff\xff\xff\xffsb.",
            b"\x80\x04cdecimal\nDecimal\n\x8c\x01x\x85R.",
            b"\x80\x04czoneinfo\nZoneInfo._unpickle\n\x8c\x0b/etc/passwdK\x01\x86R.",
            b"\x80\x04cdatetime\ndate\n.",
            b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
            b"\x80\x05\x97.",
            b"}]Ns.",
            b"h\x00.",
            b"\xff.",
            b".",
            b"",
        ],
    )
    def test_what_pickle_does_not_write_is_damaged(self, data: bytes) -> None:
        assert pickles.read(data).kind == "damaged"

    def test_random_bytes_do_no_harm(self) -> None:
        chance = random.Random(1)
        base = [pickle.dumps(value, each) for value in VALUES[:-2] for each in range(6)]
        seen = set()
        for _ in range(20_000):
            data = bytearray(chance.choice(base))
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            seen.add(pickles.read(bytes(data)).kind)
        assert seen == {"plain", "data", "classes", "damaged", "costly"}

    @pytest.mark.parametrize(
        "data",
        [
            # Lists of twice the one before, to the power of 60; as a key, whose hash walks it.
            b"\x80\x04]" + b"".join(b"\x94](h%ch%ce" % (n, n) for n in range(60)) + b".",
            b"\x80\x04})" + b"2\x86" * 60 + b"Ns.",
            # A megabyte, a million times.
            b"\x80\x04X\0\0\x10\0" + b"x" * (1 << 20) + b"\x94](" + b"h\0" * 1_000_000 + b"e.",
            b"\x80\x04]\x94h\0a.",
            b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".",
            b"\x80\x04})" + b"\x85" * 100_000 + b"Ns.",
            b"(" * 3_000_000,
            b"\x8f" * 1_000_000,
            # Equal hashes: all keys are compared with each other.
            b"\x80\x04}("
            + b"".join(
                b"\x8a\x0a%bN" % (n * (2**61 - 1)).to_bytes(10, "little") for n in range(40_000)
            )
            + b"u.",
            b"\x80\x04\x8b\0\0\0\x01" + b"\x01" * (1 << 24) + b".",
            b"I" + b"9" * 1_000_000 + b"\n.",
            b"L" + b"9" * 1_000_000 + b"L\n.",
        ],
        ids=lambda data: f"{data[:12]!r}",
    )
    def test_one_that_would_exhaust_a_reader_is_costly(
        self, data: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Less work than it allows takes less time to test.
        monkeypatch.setattr(pickles, "_MOST_WORK", 200_000)
        assert pickles.read(data).kind == "costly"


def test_hashes_of_a_long_int_count() -> None:
    data = b"\x80\x04\x8b" + struct.pack("<I", 65536) + b"w" * 65536 + b"\x940\x8f("
    for key in (b"h\x00", b"h\x00\x85"):
        assert pickles.read(data + key * 10_000 + b"\x90.").kind == "costly"


def hashes(folder: Path) -> dict[str, bytes]:
    return {
        str(each): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not each.name.endswith("-shm")
    }


def audited(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    before = hashes(folder)
    names = sorted(folder.rglob("*"))
    status = main(["audit", "--json", str(folder)])
    out = capsys.readouterr().out
    assert hashes(folder) == before
    assert sorted(folder.rglob("*")) == names
    return status, json.loads(out) if out else None


PLAIN = pickle.dumps([1, None])


def share_pages(database: Path, table: str) -> None:
    """Puts levels of pages above the table's only page, that each name the next one 200 times."""
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(database.read_bytes())

    def page(child: int) -> bytes:
        cells = b""
        for key in range(1, 201):
            varint = bytes([key]) if key < 128 else bytes([128 | key >> 7, key & 127])
            cells = child.to_bytes(4, "big") + varint + cells
        # The key of the first cell is the last one.
        at, places = size, []
        for key in range(1, 201):
            at -= 5 if key < 128 else 6
            places.append(at)
        header = struct.pack(">BHHHBI", 5, 0, 200, at, 0, child)
        table_of_cells = struct.pack(">200H", *places)
        return (header + table_of_cells).ljust(at, b"\0") + cells

    start = (root - 1) * size
    data += data[start : start + size]
    for _ in range(10):
        data += page(len(data) // size)
    data[start : start + size] = page(len(data) // size)
    data[28:32] = struct.pack(">I", len(data) // size)
    data[92:96] = data[24:28]
    database.write_bytes(data)


class TestAudit:
    def test_what_it_counts(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        old = make(
            tmp_path / "old",
            ("s", 1, None, "news", 1, None, "text"),
            ("i", 1, None, "news", 1, None, 7),
            (b"b", 1, None, None, 1, None, b"\x1f\x8b compressed"),
            ("file", 1, None, None, 2, "aa/1.val", None),
            ("gone", 1, None, None, 3, "aa/2.val", None),
            (pickle.dumps(("f", 1)), 0, None, None, 4, None, PLAIN),
            ("day", 1, None, None, 4, None, pickle.dumps(date(2020, 1, 2))),
            ("runs", 1, None, None, 4, None, pickle.dumps(Runs())),
            ("plain", 1, None, None, 4, None, pickle.dumps(Plain())),
            ("cut", 1, None, None, 4, None, PLAIN[:-2]),
            ("old", 1, 5.0, None, 4, None, pickle.dumps(Runs())),
            ("k" * 70_000, 1, None, None, 1, None, 1),
            ("zone", 1, None, None, 4, None, pickle.dumps(timezone.utc)),
        )
        (old / "aa").mkdir()
        (old / "aa" / "1.val").write_bytes(b"x" * 1000)
        status, found = audited(old, capsys)
        assert (status, found["moves"], found["complete"]) == (1, 6, False)
        assert {each["reason"]: (each["entries"], each["examples"]) for each in found["left"]} == {
            "no file": (1, ["'gone'"]),
            "classes": (2, ["'runs'", "'plain'"]),
            "damaged": (1, ["'cut'"]),
            "expired": (1, ["'old'"]),
            "too large": (1, [ascii("k" * 80)[:77] + "..."]),
            "no form": (1, ["'zone'"]),
        }
        (store,) = found["stores"]
        system = f"{os.system.__module__}.system"
        assert store["kind"] == "Cache"
        assert store["entries"] == 13
        assert store["keys"] == {"str": 11, "bytes": 1, "pickle": 1}
        assert store["values"] == {"str": 2, "int": 2, "bytes": 2, "pickle": 7}
        assert store["in_files"] == 2
        assert store["pickles"] == {"plain": 2, "data": 2, "classes": 3, "damaged": 1}
        assert store["runs_code_of"] == {system: 2, f"{__name__}.Plain": 1}
        assert store["dangerous"] == [system]
        assert store["data_classes"] == {
            "datetime.date": 1,
            "datetime.timezone": 1,
            "datetime.timedelta": 1,
        }
        assert store["compressed"] == {"gzip": 1}
        assert (store["tagged"], store["tags"]) == (2, {"news": 2})
        assert store["settings"]["eviction_policy"] == "least-recently-used"

    def test_convert_moves_what_it_says(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [
            (f"{number}", 1, None, None, 4, None, pickle.dumps(value))
            for number, value in enumerate([*VALUES, Plain(), range(3), 1j, timezone.utc])
        ]
        old = make(tmp_path / "old", *rows)
        status, found = audited(old, capsys)
        assert main(["convert", "--json", str(old), str(tmp_path / "new")]) == status == 1
        done = json.loads(capsys.readouterr().out)
        assert done["converted"] == found["moves"] == len(VALUES)
        assert done["left"] == found["left"]
        with Cache(tmp_path / "new") as new:
            for number, value in enumerate(VALUES):
                assert repr(new[f"{number}"]) == repr(value)

    def test_it_is_0_if_all_moves(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = [("k", 1, None, None, 4, None, PLAIN), ("old", 1, 5.0, None, 1, None, 1)]
        assert audited(make(tmp_path / "old", *rows), capsys)[0] == 0

    def test_for_people(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        settings = {"eviction_policy": "none", "disk_compress_level": 1}
        escape = b"c\x1b[2J\nx\n)R."
        make(
            tmp_path / "old" / "000",
            ("k", 1, None, "t", 4, None, pickle.dumps(Runs())),
            ("e", 1, None, None, 4, None, escape),
        )
        make(tmp_path / "old" / "001", ("l", 1, None, None, 1, None, 1.5))
        make(tmp_path / "old" / "deque" / "q", (1, 1, None, None, 1, None, 1), settings=settings)
        assert main(["audit", str(tmp_path / "old")]) == 1
        told = capsys.readouterr().out
        assert "\x1b" not in told
        system = f"{os.system.__module__}.system"
        for text in (
            "old: FanoutCache or DjangoCache of 2 shards, 3 entries, ",
            f"unpickling runs code of {system}: 1 entry; DANGEROUS",
            "written by JSONDisk",
            "Cache that evicts nothing, such as of Deque and Index, 1 entry",
            "convert moves 2 entries\n2 left out, as they are pickled objects of classes",
        ):
            assert text in told

    def test_one_in_use(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        using = open_in_wal(tmp_path / "old", ("k", 1, None, None, 4, None, PLAIN))
        assert (tmp_path / "old" / "cache.db-wal").stat().st_size > 0
        status, found = audited(tmp_path / "old", capsys)
        assert (status, found["moves"]) == (0, 1)
        # A copy without SQLite's shared memory.
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("cache.db", "cache.db-wal"):
            (copy / name).write_bytes((tmp_path / "old" / name).read_bytes())
        status, found = audited(copy, capsys)
        assert (status, found["moves"]) == (0, 1)
        using.close()

    def test_one_that_may_not_be_written_to(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old = make(tmp_path / "old", ("k", 1, None, None, 4, None, PLAIN))
        (old / "cache.db").chmod(0o444)
        old.chmod(0o555)
        try:
            assert audited(old, capsys)[0] == 0
            assert main(["convert", str(old), str(tmp_path / "new")]) == 0
            assert [each.name for each in old.iterdir()] == ["cache.db"]
        finally:
            old.chmod(0o755)

    def test_a_damaged_one(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = [(f"{number}", 1, None, None, 1, None, b"x" * 1000) for number in range(200)]
        old = make(tmp_path / "old", *rows)
        data = bytearray((old / "cache.db").read_bytes())
        middle = len(data) // 2 // 4096 * 4096
        data[middle : middle + 8192] = b"\xff" * 8192
        (old / "cache.db").write_bytes(data)
        status, found = audited(old, capsys)
        assert status == 1
        assert 100 < found["moves"] < 200
        assert "malformed" in found["stores"][0]["damaged"][str(old)]
        assert main(["convert", str(old), str(tmp_path / "new")]) == 1
        assert "is damaged, and not read fully" in capsys.readouterr().out
        with Cache(tmp_path / "new") as new:
            assert len(new) == found["moves"]
            assert "0" in new and "199" in new

    def test_a_view_is_no_table(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        using = open_in_wal(tmp_path / "old")
        using.executescript(
            "DROP TABLE Cache; CREATE VIEW Cache AS WITH RECURSIVE c(key) AS"
            " (SELECT 1 UNION ALL SELECT key FROM c) SELECT * FROM c"
        )
        using.close()
        assert main(["audit", str(tmp_path / "old")]) == 2
        assert "has no table of diskcache's entries" in capsys.readouterr().err

    def test_what_computes_for_ever_is_not_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        endless = "(instr(zeroblob(20000000), zeroblob(10000000) || 'x'))"
        for number, script in enumerate((
            "DROP TABLE Settings; CREATE VIEW Settings AS WITH RECURSIVE c(key) AS"
            " (SELECT 1 UNION ALL SELECT key FROM c) SELECT key, key AS value FROM c",
            "DROP TABLE Settings; CREATE TABLE Settings (key); INSERT INTO Settings VALUES (1);"
            f" ALTER TABLE Settings ADD COLUMN value AS {endless}",
        )):  # fmt: skip
            old = tmp_path / f"{number}"
            using = open_in_wal(old, ("k", 1, None, None, 4, None, PLAIN))
            using.executescript(script)
            using.close()
            status, found = audited(old, capsys)
            assert (status, found["moves"]) == (1, 1)
            assert found["stores"][0]["damaged"] == {str(old): "no such table: Settings"}
        using = open_in_wal(tmp_path / "old", ("k", 1, None, None, 4, None, PLAIN))
        using.execute(f"ALTER TABLE Cache ADD COLUMN raw2 AS {endless}")
        using.close()
        assert main(["audit", str(tmp_path / "old")]) == 2
        assert "has no table of diskcache's entries" in capsys.readouterr().err

    @pytest.mark.parametrize("table", ["Cache", "Settings"])
    def test_pages_that_contain_each_other_end(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str
    ) -> None:
        rows = [(f"{number}", 1, None, None, 1, None, 1) for number in range(5)]
        old = make(tmp_path / "old", *rows)
        share_pages(old / "cache.db", table)
        status, found = audited(old, capsys)
        assert found["moves"] == 5
        if table == "Cache":
            assert status == 1
            assert found["stores"][0]["damaged"] == {str(old): "its rows are not in order"}

    @pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
    def test_a_file_without_an_end(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
    ) -> None:
        old = make(tmp_path / "old", ("k", 1, None, None, 4, None, PLAIN))
        file = old / f"cache.db{end}"
        file.unlink(missing_ok=True)
        os.mkfifo(file)
        assert main(["audit", str(old)]) == 2
        assert f"cache.db{end} is no regular file" in capsys.readouterr().err
        file.unlink()
        file.symlink_to("/dev/zero")
        assert main(["audit", str(old)]) == 2
        assert f"cache.db{end} is no regular file" in capsys.readouterr().err

    def test_odd_names(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        make(tmp_path / "\x1b[31m\udcff", ("k", 1, None, None, 4, None, PLAIN))
        assert main(["audit", str(tmp_path)]) == 0
        assert "/\\x1b[31m\\udcff: Cache, 1 entry" in capsys.readouterr().out

    def test_the_new_one_is_not_in_the_old_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old = make(tmp_path / "old", ("k", 1, None, None, 4, None, PLAIN))
        (tmp_path / "link").symlink_to(old)
        for new in (old / "new", tmp_path / "link" / "a" / "new"):
            assert main(["convert", str(old), str(new)]) == 2
            assert "which does not change" in capsys.readouterr().err
        assert [each.name for each in old.iterdir()] == ["cache.db"]

    def test_a_key_with_more_digits_than_python_writes(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        key = 1 << 50_000
        old = make(tmp_path / "old", (pickle.dumps(key), 0, None, None, 1, None, "v"))
        assert audited(old, capsys)[0] == 0
        assert main(["convert", str(old), str(tmp_path / "new")]) == 0
        with Cache(tmp_path / "new") as new:
            assert new[key] == "v"

    def test_a_key_of_nan_is_not_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # SQLite stores NaN as NULL, and diskcache pickles None.
        old = make(
            tmp_path / "old",
            (pickle.dumps(None), 0, None, None, 1, None, "none"),
            (None, 1, None, None, 1, None, "nan"),
        )
        assert main(["convert", str(old), str(tmp_path / "new")]) == 1
        assert "1 left out, as Shale has no form" in capsys.readouterr().out
        with Cache(tmp_path / "new") as new:
            assert new[None] == "none"
            assert len(new) == 1

    def test_wrong_directories(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["audit", str(tmp_path)]) == 2
        assert "is no directory of diskcache" in capsys.readouterr().err
        (tmp_path / "cache.db").write_bytes(b"something else" * 100)
        assert main(["audit", str(tmp_path)]) == 2
        assert "not a database" in capsys.readouterr().err
