"""Runs the built tool at the path SHALE_TOOL, as a shell does."""

import base64
import fcntl
import hashlib
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xxhash

TOOL = os.environ["SHALE_TOOL"]
COMMANDS = {
    "stats": [],
    "top": ["--count", "1", "--interval", "10ms"],
    "ls": [],
    "inspect": [],
    "report": ["--for", "none"],
    "get": ["key"],
    "set": ["key", "value"],
    "rm": ["key"],
    "expire": ["key"],
    "export": [],
    "import": ["/dev/null"],
    "verify": [],
    "purge": [],
    "evict": ["1"],
    "clear": ["--yes"],
}
READING = ["stats", "top", "ls", "inspect", "report", "get", "export", "verify"]
F_OFD_SETLK = 37  # <asm-generic/fcntl.h>
LIMIT = 120  # seconds; no command here takes nearly as long


def run(*arguments, status=0, input=b"", **more):
    done = subprocess.run([TOOL, *map(str, arguments)], input=input, capture_output=True, timeout=LIMIT, **more)
    assert status is None or done.returncode == status, (arguments, done)
    return done


def text(*arguments, **more):
    return run(*arguments, **more).stdout.decode()


def error(*arguments, status, **more):
    """Its one-line error message."""
    said = run(*arguments, status=status, **more).stderr.decode()
    assert said.endswith("\n") and said.count("\n") == 1 and said.startswith("shale: "), said
    return said


@pytest.fixture
def cache(tmp_path):
    path = tmp_path / "cache"
    run("set", path, "key", "value", "--create", "--capacity", "8MiB")
    return path


def state(path):
    return {file.name: (hashlib.sha256(file.read_bytes()).digest(), file.stat().st_mtime_ns) for file in path.iterdir()}


def version(path):
    with open(path / "shale.data", "rb") as file:
        return int.from_bytes(file.read(12)[8:], "little")


def give_version(path, version):
    """Rewrites both copies of the superblock with another version and a valid checksum."""
    with open(path / "shale.data", "r+b") as file:
        for at in (0, 2048):
            file.seek(at)
            block = bytearray(file.read(128))
            block[8:12] = version.to_bytes(4, "little")
            seed = int.from_bytes(block[:8], "little")
            block[120:128] = xxhash.xxh3_64_intdigest(bytes(block[:120]), seed).to_bytes(8, "little")
            file.seek(at)
            file.write(block)


# Paths


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_path_creates_nothing(command, tmp_path):
    path = tmp_path / "typo"
    assert str(path) in error(command, path, *COMMANDS[command], status=66)
    assert not path.exists()
    path.mkdir()
    assert "no cache" in error(command, path, *COMMANDS[command], status=66)
    assert list(path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("")
    assert "is a file" in error(command, file, *COMMANDS[command], status=66)


@pytest.mark.parametrize("action", ["invalidate", "expire"])
def test_tags_at_a_wrong_path_creates_nothing(action, tmp_path):
    error("tags", action, tmp_path / "typo", "tag", status=66)
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("command", READING)
def test_reading_commands_change_nothing(command, cache):
    before = state(cache)
    run(command, cache, *COMMANDS[command])
    run("doctor", cache)
    assert state(cache) == before


def test_every_command_is_tested():
    names = re.findall(r"^  (\w+)  ", text("--help").split("SUBCOMMANDS:", 1)[1], re.MULTILINE)
    assert set(names) == {*COMMANDS, "doctor", "tags"}


def test_create_keeps_an_existing_cache(cache):
    run("set", cache, "other", "value", "--create", "--capacity", "64MiB")
    assert json.loads(text("stats", cache, "--json"))["capacity_bytes"] == 8 << 20
    assert text("get", cache, "key") == "value"


# Entries


def test_values_are_bytes(cache):
    value = bytes(range(256)) * 4097
    run("set", cache, "binary", input=value)
    assert run("get", cache, "binary").stdout == value
    run("set", cache, "empty", input=b"")
    assert run("get", cache, "empty").stdout == b""


@pytest.mark.parametrize(
    "key,shown",
    [
        (b"plain", "plain"),
        (b"back\\slash", "back\\\\slash"),
        (b"line\nend\x00\x1b", "line\\x0aend\\x00\\x1b"),
        ("né €".encode(), "né €"),
        (b"\xffP1s\xc3", "\\xffP1s\\xc3"),
        ("\u202e".encode(), "\\xe2\\x80\\xae"),
    ],
)
def test_keys_are_parsed_as_listed(key, shown, cache):
    line = {"key64": base64.b64encode(key).decode(), "value": "of it"}
    run("import", cache, input=json.dumps(line).encode())
    assert set(text("ls", cache).splitlines()) == {"key", shown}
    assert text("get", cache, shown) == "of it"
    run("rm", cache, shown)
    assert text("ls", cache) == "key\n"


@pytest.mark.parametrize("key", ["\\", "\\x", "\\x1", "\\xg0", "\\n"])
def test_other_escapes_are_wrong_usage(key, cache):
    run("get", cache, key, status=64)


def test_missing_keys(cache):
    for command in ["get", "rm", "expire"]:
        said = error(command, cache, "other", status=1)
        assert str(cache) in said and "'other'" in said
    run("rm", cache, "other", "key", status=1)
    assert text("ls", cache) == ""


def test_conditions(cache):
    assert "already exists" in error("set", cache, "key", "new", "--if-absent", status=1)
    assert "does not exist" in error("set", cache, "other", "new", "--if-present", status=1)
    assert text("get", cache, "key") == "value"
    run("set", cache, "key", "new", "--if-present")
    assert text("get", cache, "key") == "new"
    run("set", cache, "key", "new", "--if-present", "--if-absent", status=64)


def test_ages(cache):
    run("set", cache, "kept", "value", "--max-age", "1h", "--stale-for", "1h")
    run("expire", cache, "kept", "key")
    assert text("ls", cache) == ""
    assert text("ls", cache, "--stale") == "kept\n"
    error("get", cache, "kept", status=1)
    assert text("get", cache, "kept", "--stale") == "value"
    run("set", cache, "over", "value", "--max-age", "none")
    assert text("purge", cache) == "1 entries removed\n"
    assert text("get", cache, "kept", "--stale", "--info").count("stale") == 1


def test_tags(cache):
    run("set", cache, "tagged", "value", "--tag", "a", "--tag", "b", "--stale-for", "1h")
    run("tags", "expire", cache, "a")
    assert set(text("ls", cache, "--stale").split()) == {"key", "tagged"}
    run("get", cache, "tagged", status=1)
    run("tags", "invalidate", cache, "c", "b")
    assert text("ls", cache, "--stale") == "key\n"


def test_lists(cache):
    run("set", cache, "pinned", "x" * 5000, "--pinned", "--max-age", "2d")
    lines = [json.loads(line) for line in text("ls", cache, "--json").splitlines()]
    entry = next(line for line in lines if line["key"] == "pinned")
    assert (entry["size"], entry["pinned"], entry["stale"]) == (5000, True, False)
    assert entry["stored"] < 5000 and entry["expires"] - entry["created"] == 2 * 86_400_000
    long = text("ls", cache, "-l", "--prefix", "pin").split("  ")
    assert "5,000" in [each.strip() for each in long] and "-P" in long and long[-1] == "pinned\n"
    assert len(text("ls", cache, "--limit", "1").splitlines()) == 1


def test_info(cache):
    run("set", cache, "key", "value", "--meta", 'ETag "x"', "--max-age", "1h")
    shown = dict(line.split("  ", 1) for line in text("get", cache, "key", "--info").splitlines())
    assert shown["meta"].strip() == 'ETag "x"' and shown["size"].strip() == "5 bytes"


# The whole cache


def test_evict_and_clear(cache):
    for i in range(10):
        run("set", cache, f"key{i}", "value")
    assert text("evict", cache, "3") == "3 entries evicted\n"
    left = set(text("ls", cache).split())
    assert left == {f"key{i}" for i in range(2, 10)}  # without the oldest: key, key0 and key1
    assert "--yes" in error("clear", cache, status=1)
    assert set(text("ls", cache).split()) == left
    run("clear", cache, "--yes")
    assert text("ls", cache) == ""
    run("evict", cache, "--", "-1", status=64)


def test_verify(cache):
    run("set", cache, "damaged", "a value that is looked for")
    assert "all intact" in text("verify", cache)
    data = (cache / "shale.data").read_bytes()
    with open(cache / "shale.data", "r+b") as file:
        file.seek(data.index(b"a value that is looked for"))
        file.write(b"A")
    for _ in range(2):
        assert str(cache) in error("verify", cache, status=1)
    error("verify", cache, "--drop", status=1)
    assert "all intact" in text("verify", cache)
    assert text("ls", cache) == "key\n"
    assert "damaged" in text("doctor", cache, status=1)


# Numbers


def test_stats(cache):
    numbers = json.loads(text("stats", cache, "--json"))
    assert numbers["entries"] == 1 and numbers["sets"] == 1 and numbers["eviction"] == "LRU"
    assert numbers["raw_bytes"] == 5 and numbers["capacity_bytes"] == 8 << 20
    table = text("stats", cache)
    assert str(cache) in table and "8.0 MiB" in table and "\x1b" not in table
    run("stats", cache, "--json", "--prometheus", status=64)


def test_prometheus(tmp_path):
    path = tmp_path / 'a "quoted" \\ path\nof two lines'
    run("set", path, "key", "value", "--create")
    numbers = json.loads(text("stats", path, "--json"))
    described, found = set(), {}
    label = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    for line in text("stats", path, "--prometheus").splitlines():
        if line.startswith("# "):
            described.add((line.split()[1], line.split()[2]))
            continue
        name, rest = line.split("{", 1)
        assert rest.startswith(f'cache="{label}"}} '), line
        assert {("HELP", name), ("TYPE", name)} <= described
        found[name] = int(rest.rsplit(" ", 1)[1])
    assert found["shale_entries"] == 1 and found["shale_sets_total"] == 1
    assert {name.removeprefix("shale_").removesuffix("_total") for name in found} == numbers.keys() - {
        "cache",
        "eviction",
    }


def test_inspect_agrees_with_stats(tmp_path):
    path = tmp_path / "cache"
    lines = [{"key": f"key{i}", "value": json.dumps([{"name": f"n{i}", "id": i}] * (i % 30))} for i in range(5000)]
    lines += [{"key": f"pinned{i}", "value": "x", "pinned": True} for i in range(10)]
    run("import", path, "--create", "--capacity", "300MiB", input="\n".join(map(json.dumps, lines)).encode())
    run("rm", path, *[f"key{i}" for i in range(0, 5000, 5)])
    numbers = json.loads(text("stats", path, "--json"))
    found = json.loads(text("inspect", path, "--json"))
    shards = found["perShard"]
    assert found["shards"] == len(shards) == numbers["shards"] > 1
    assert sum(each["entries"] for each in shards) == numbers["entries"] == 4010
    assert sum(each["liveBytes"] for each in shards) == numbers["live_bytes"]
    assert all(each["segments"] >= 1 and each["deadBytes"] > 0 for each in shards)
    sizes = found["sizes"]
    assert sum(each["entries"] for each in sizes) == sum(each["entries"] for each in found["ages"]) == 4010
    assert sum(each["rawBytes"] for each in sizes) == numbers["raw_bytes"]
    assert sum(each["storedBytes"] for each in sizes) == numbers["stored_bytes"]
    assert found["pinned"] == 10 and found["neverExpire"] == 4010
    assert len(found["dictionaries"]) == numbers["dictionaries"] > 0
    for heading in ["Shards", "Sizes and compression", "Ages"]:
        assert heading in text("inspect", path)


def test_inspect_without_an_index(cache):
    (cache / "shale.index").unlink()
    assert "index is missing" in text("inspect", cache)
    assert "missing" in text("doctor", cache)
    assert not (cache / "shale.index").exists()


def test_top_shows_activity_of_other_processes(cache):
    top = subprocess.Popen([TOOL, "top", cache, "--interval", "20ms"], stdout=subprocess.PIPE, text=True)
    alarm = threading.Timer(LIMIT, top.kill)
    alarm.start()
    over = threading.Event()

    def write():
        while not over.is_set():
            run("set", cache, "key", "value")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert "sets/s" in top.stdout.readline()
        assert any(line.split()[2].replace(",", "").isdigit() and line.split()[2] != "0" for line in top.stdout)
    finally:
        over.set()
        writer.join()
        alarm.cancel()
        top.send_signal(signal.SIGINT)
        top.stdout.close()
        top.wait(LIMIT)


# Report


class Reads(threading.Thread):
    """Increments the read counters in the index, as a program does: three hits per miss."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.over = threading.Event()

    def run(self):
        line = 4096  # format.md: counters, one of 128 lines
        with open(self.path / "shale.index", "r+b", buffering=0) as index:
            before = struct.unpack("<QQQ", os.pread(index.fileno(), 24, line))
            count = 0
            while not self.over.is_set():
                count += 1
                counters = before[0] + 3 * count, before[1], before[2] + count
                os.pwrite(index.fileno(), struct.pack("<QQQ", *counters), line)

    def __enter__(self):
        self.start()

    def __exit__(self, *error):
        self.over.set()
        self.join()


def report(path, *arguments, command="report"):
    """The page, and the content of its charts by title: paths of lines, or names and values of bars."""
    html = text(command, path, *arguments)
    # The page loads nothing and runs nothing.
    assert not re.search(r"://|<script|<link|<img|src=|href=|url\(|@import", html)
    assert "prefers-color-scheme: dark" in html and "default-src 'none'" in html
    page = ElementTree.fromstring(html)
    charts = {}
    for figure in page.iter("figure"):
        texts = [each.text for each in figure.findall("div[@class='bars']/span")]
        lines = [each.get("d") for each in figure.findall("div[@class='plot']/svg/path") if each.get("class") != "grid"]
        charts[figure.find("figcaption").text] = lines or dict(zip(texts[::2], texts[1::2]))
    tiles = {each.find("dt").text: each.find("dd").text for each in page.iterfind(".//dl/div")}
    return page, charts, tiles


def test_report_of_a_session(tmp_path):
    path = tmp_path / 'a "quoted" <cache> & \x07 more'
    run("set", path, "key", "value", "--create", "--capacity", "8MiB")
    with Reads(path):
        for _ in range(LIMIT):
            page, charts, tiles = report(path, "--for", "1s", "--interval", "100ms")
            if int(tiles["Reads"].replace(",", "")) > 400:
                break
    assert page.find(".//h1").text == str(path).replace("\x07", "\ufffd")
    assert 1 <= float(tiles["Recorded"].removesuffix(" s")) < LIMIT
    assert 74 < float(tiles["Hits"].removesuffix(" %")) < 76
    points = re.findall(r"([\d.]+) ([\d.]+)", charts["Hit ratio"][0])
    assert len(points) >= 2 and float(points[-1][0]) == 1000
    assert all(0 <= float(x) <= 1000 and 0 <= float(y) <= 100 for x, y in points)
    middle = sorted(float(y) for _, y in points)[len(points) // 2]
    assert 20 < middle < 30  # from the top
    missed = charts["Why reads missed"]
    assert missed["no such key"] != "0" and missed["expired"] == "0"
    assert charts["Changes per second"][0].count("L") >= 2 and len(charts["Changes per second"]) == 3


def test_report_of_a_session_without_reads(cache):
    _, charts, tiles = report(cache, "--for", "30ms", "--interval", "10ms")
    assert charts["Hit ratio"] == [""] and tiles["Hits"] == "-" and tiles["Reads"] == "0"


def test_report_agrees_with_inspect(tmp_path):
    path, file = tmp_path / "cache", tmp_path / "report.html"
    lines = [{"key": f"key{i}", "value": "v" * (i % 3000)} for i in range(5000)]
    run("import", path, "--create", "--capacity", "64MiB", input="\n".join(map(json.dumps, lines)).encode())
    found = json.loads(text("inspect", path, "--json"))
    page, charts, tiles = report(path, "--for", "none")
    assert page.find("head/title").text == f"{path}: Shale cache"
    assert "Nothing was recorded." in "".join(page.itertext()) and "Hit ratio" not in charts
    assert tiles["Entries"] == "5,000"
    for title, classes in [("Entries by size of the value", "sizes"), ("Entries by age", "ages")]:
        shown = [int(value.replace(",", "")) for value in charts[title].values()]
        assert shown == [each["entries"] for each in found[classes]] and sum(shown) == 5000
    compressed = charts["Compressed size of the values"]
    assert len(compressed) == len(found["sizes"]) - 1  # without the empty values
    last = found["sizes"][-1]
    assert float(list(compressed.values())[-1].split()[0]) == round(last["storedBytes"] / last["rawBytes"] * 100, 1)
    assert len(charts["Logs of the shards"]) == found["shards"]
    numbers = json.loads(text("stats", path, "--json"))
    rows = [[cell.text for cell in row] for row in page.iterfind(".//tbody/tr")]
    assert len(rows) == len(numbers) - 2 and ["Sets", "5,000"] in rows

    assert run("report", path, "--for", "none", "-o", file).stdout == b""
    assert ElementTree.fromstring(file.read_text()).find(".//h1").text == str(path)
    assert not Path(f"{file}.unfinished").exists()
    assert report(path, "--html", command="inspect")[1] == charts
    run("inspect", path, "--html", "--json", status=64)
    (path / "shale.index").unlink()
    assert "the index is missing" in "".join(report(path, "--for", "none")[0].itertext())
    run("report", path, "--for", "never", status=64)
    run("report", path, "--interval", "1ms", status=64)


# Export and import


def test_exported_entries_can_be_imported(cache, tmp_path):
    run("set", cache, "binary", input=bytes(range(256)))
    run("set", cache, "\\xff", "v", "--meta", "\\xfe", "--max-age", "1h", "--pinned")
    run("set", cache, "stale", "v", "--max-age", "none", "--stale-for", "1h")
    file, copy = tmp_path / "lines", tmp_path / "copy"
    assert "3 entries exported" in run("export", cache, "-o", file).stderr.decode()
    assert sorted(file.read_text().splitlines()) == sorted(text("export", cache).splitlines())
    assert "3 entries stored" in run("import", copy, file, "--create").stderr.decode()

    def exported(path):
        lines = sorted((json.loads(line) for line in text("export", path).splitlines()), key=str)
        return lines, [line.pop("expires") for line in lines if "expires" in line]

    (lines, (expires,)), (copied, (later,)) = exported(cache), exported(copy)
    assert lines == copied
    # An import sets the remaining age in whole milliseconds.
    assert abs(later - expires) < LIMIT * 1000


# Valid file names, invalid ones, and names with a special meaning.
KEYS = [
    b"plain-name_1.txt",
    b"a",
    b"a/b",
    b"/absolute",
    b"../above",
    b"..",
    b".",
    b"folder/",
    b"100%25",
    b"with space and \\ and \n\t",
    "Schlüssel".encode(),
    b"\x00\xff\xfe",
    b"~",
    b"-option",
    b"k" * 101,
    b"k" * 3000 + b"1",
    b"k" * 3000 + b"2",
]


def written(key):
    """The key as an argument."""
    return "".join(f"\\x{byte:02x}" for byte in key)


def listed(path):
    """All entries with all exported fields."""
    entries = {}
    for line in map(json.loads, text("export", path).splitlines()):
        key = base64.b64decode(line.pop("key64")) if "key64" in line else line.pop("key").encode()
        entries[key] = line
    return entries


def test_tar_has_the_same_data_as_lines(tmp_path):
    path, file, copy = tmp_path / "cache", tmp_path / "entries.tar", tmp_path / "copy"
    for i, key in enumerate(KEYS):
        run("set", path, "--create", "--", written(key), input=key * i)
    run("set", path, "meta", "value", "--meta", "line\n\\xfe\\x00=", "--max-age", "7d", "--pinned")
    run("set", path, "large", input=os.urandom(3_000_001))
    assert f"{len(KEYS) + 2} entries exported" in run("export", path, "--tar", "-o", file).stderr.decode()
    assert file.read_bytes() == run("export", path, "--tar").stdout
    assert file.stat().st_size % 512 == 0 and file.read_bytes().endswith(bytes(1024))

    assert f"{len(KEYS) + 2} entries stored" in run("import", copy, file, "--create").stderr.decode()
    there, here = listed(path), listed(copy)
    assert there.keys() == {*KEYS, b"meta", b"large"}
    for entries in there, here:
        expires = entries[b"meta"].pop("expires")
        assert abs(expires / 1000 - time.time() - 7 * 86400) < LIMIT
    assert there == here

    # Other tar implementations.
    with tarfile.open(file) as archive:
        members = {}
        for member in archive:
            # Each member is extracted to its own file in one folder.
            assert member.isreg() and re.fullmatch(r"[\w.:=@,+~%-]{1,255}", member.name), member.name
            assert member.name not in (".", "..") and abs(member.mtime - time.time()) < LIMIT
            attributes = {
                name.removeprefix("SCHILY.xattr.user.shale."): value
                for name, value in member.pax_headers.items()
                if name.startswith("SCHILY.")
            }
            members[member.name] = attributes, archive.extractfile(member).read()
    assert len(members) == len(KEYS) + 2
    assert members["plain-name_1.txt"] == ({}, b"") and members["a"] == ({}, b"a")
    assert members["a%2Fb"] == ({"key": "a/b"}, b"a/b" * 2)
    assert members["%2E."] == ({"key": ".."}, b".." * 5)
    attributes, value = members["meta"]
    assert value == b"value" and attributes.keys() == {"meta", "expires", "pinned"}
    assert attributes["meta"] == "line\\x0a\\xfe\\x00=" and attributes["pinned"] == "1"
    done = subprocess.run(["tar", "-tf", file], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == members.keys() and done.stderr == ""

    # Extracted and archived again.
    try:
        os.setxattr(tmp_path, "user.shale", b"")
    except OSError:
        return  # this file system has no such attributes
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "--xattrs", "-C", tmp_path / "unpacked", "-xf", file], check=True)
    packing = ["tar", "--xattrs", "--format=pax", "-C", tmp_path / "unpacked", "-cf", "-", "."]
    again = subprocess.run(packing, capture_output=True, check=True).stdout
    said = run("import", tmp_path / "third", "--create", input=again).stderr.decode()
    assert "1 members are not files" in said
    third = listed(tmp_path / "third")
    third[b"meta"].pop("expires")
    assert third == there


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_import_reads_other_tar_formats(form, cache):
    names = ["short", "d" * 60 + "/" + "n" * 80, "with space"]
    names += ["n" * 300, "dir/" * 70 + "name", "Schlüssel"] if form != tarfile.USTAR_FORMAT else []
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=form) as writing:
        for kind, name in [(tarfile.DIRTYPE, "folder"), (tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "n" * 90)]:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "l" * (90 if form == tarfile.USTAR_FORMAT else 200)
            writing.addfile(member)
        for i, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = i * 511
            writing.addfile(member, io.BytesIO(name[:1].encode() * member.size))
    said = run("import", cache, input=archive.getvalue()).stderr.decode()
    assert f"{len(names)} entries stored, 3 members are not files" in said
    for i, name in enumerate(names):
        assert run("get", cache, name).stdout == name[:1].encode() * (i * 511)
    # Without the end blocks, and with only end blocks.
    assert "stored" in run("import", cache, input=archive.getvalue().rstrip(b"\0") + b"\0" * 512).stderr.decode()
    assert "0 entries stored" in run("import", cache, input=b"\0" * 10240).stderr.decode()


def test_import_ends_at_a_bad_member(cache, tmp_path):
    def member(name, value=b"value", **attributes):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as writing:
            info = tarfile.TarInfo(name)
            info.size = len(value)
            info.pax_headers = {f"SCHILY.xattr.user.shale.{each}": text for each, text in attributes.items()}
            writing.addfile(info, io.BytesIO(value))
        whole = archive.getvalue()
        used = len(whole.rstrip(b"\0"))
        return whole[: used + -used % 512]

    good, end = member("good"), b"\0" * 1024
    damaged = bytearray(member("late"))
    damaged[100] ^= 1
    for number, (bad, expected) in enumerate(
        [
            (bytes(damaged), "byte 1,024: not a valid member header"),
            (member("late", b"v" * 2000)[:1500], "byte 1,024: the archive ends early"),
            (member("late", key="\\q"), "late: user.shale.key is"),
            (member("late", meta="\\x1"), "late: user.shale.meta is"),
            (member("late", expires="soon"), "late: user.shale.expires is 'soon'"),
            (member("late", key=""), "late: "),
            (member("late", key="k").replace(b"33 SCHILY", b"99 SCHILY"), "byte 1,024: not a valid pax header"),
            (b"no header at all".ljust(512), "byte 1,024: not a valid member header"),
        ]
    ):
        path = tmp_path / str(number)
        run("set", path, "key", "value", "--create")
        said = error("import", path, status=65, input=good + bad + (b"" if "early" in expected else end))
        assert expected in said and "(1 entries stored before)" in said and "standard input" in said
        assert set(text("ls", path).split()) == {"key", "good"}
    # Expired entries are skipped.
    expired = member("old", expires=str(int(time.time() * 1000) - 1)) + member("older", expires=str(-(2**63)))
    assert "1 entries stored, 2 had expired" in run("import", cache, input=expired + good + end).stderr.decode()


def test_import_keeps_existing_entries(cache):
    lines = b'{"key":"key","value":"new"}\n\n{"key":"other","value":"new","expires":5}\n{"key":"third","value":""}'
    said = run("import", cache, "--if-absent", "--tag", "imported", input=lines).stderr.decode()
    assert "1 entries stored, 1 had expired, 1 already existed" in said
    assert text("get", cache, "key") == "value"
    run("tags", "invalidate", cache, "imported")
    assert text("ls", cache) == "key\n"


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b'{"key":"k"}',
        b'{"value":"v"}',
        b'{"key":"k","key64":"aw==","value":"v"}',
        b'{"key":"","value":"v"}',
        b'{"key64":"%","value":"v"}',
    ],
)
def test_import_ends_at_a_bad_line(line, cache):
    said = error(
        "import", cache, status=65, input=b'{"key":"good","value":"v"}\n' + line + b'\n{"key":"late","value":"v"}'
    )
    assert "line 2" in said and "(1 entries stored before)" in said
    assert set(text("ls", cache).split()) == {"key", "good"}


def test_an_export_that_fails_leaves_no_file(cache, tmp_path):
    file = tmp_path / "lines"
    file.write_text("older")
    run("set", cache, "large", input=os.urandom(1 << 20))
    limited = f"ulimit -f 16; exec '{TOOL}' export '{cache}' -o '{file}'"
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; {limited}"], capture_output=True, timeout=LIMIT)
    assert done.returncode == 74, done
    assert file.read_text() == "older" and not Path(f"{file}.unfinished").exists()


def test_import_of_a_missing_file_creates_no_cache(tmp_path):
    error("import", tmp_path / "cache", tmp_path / "none", "--create", status=74)
    assert not (tmp_path / "cache").exists()


# Versions, errors


@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_cache_of_another_version_is_refused(command, step, cache):
    give_version(cache, version(cache) + step)
    before = state(cache)
    said = error(command, cache, *COMMANDS[command], status=76)
    assert str(cache) in said and "another version" in said
    assert state(cache) == before
    assert "another version" in text("doctor", cache, status=1)


def test_a_file_that_is_not_a_cache(cache):
    with open(cache / "shale.data", "r+b") as file:
        file.write(b"something else")
        file.truncate(100)
    assert str(cache) in error("stats", cache, status=65)


@pytest.mark.parametrize("byte", [0, 1, 127, 255])
def test_garbage_is_not_a_cache(byte, cache):
    with open(cache / "shale.data", "r+b") as file:
        file.seek(8)
        file.write(bytes([byte]) * 4088)
    for command in ["stats", "inspect"]:
        assert run(command, cache, status=None).returncode in (65, 76)
    assert "problem" in text("doctor", cache, status=1)


def test_no_space(tmp_path):
    path = tmp_path / "cache"
    lines = "\n".join(
        json.dumps({"key": f"{i}", "value": os.urandom(8192).hex(), "pinned": True}) for i in range(300)
    ).encode()
    said = error("import", path, "--create", "--capacity", "1MiB", input=lines, status=73)
    assert str(path) in said or "pinned" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_no_permission():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        run("set", f"{folder}/cache", "key", "value", "--create")
        os.chmod(f"{folder}/cache", 0o755)
        assert folder in error("stats", f"{folder}/cache", status=77, user=65534)


def test_wrong_usage(cache):
    run("stats", status=64)
    run("nothing", status=64)
    run("set", cache, "key", "value", "--max-age", "soon", status=64)
    run("set", cache, "key", "value", "--capacity", "8MiB", status=64)
    run("top", cache, "--interval", "0ms", status=64)


def test_a_full_disk_is_an_error(cache):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([TOOL, "ls", cache], stdout=full, stderr=subprocess.PIPE, timeout=LIMIT)
    assert done.returncode == 74 and b"standard output" in done.stderr


# Doctor


def test_doctor(cache, tmp_path):
    assert "opens: 1 entries" in text("doctor", cache)
    assert all(json.loads(line)["grade"] == "good" for line in text("doctor", cache, "--json").splitlines())
    assert "free" in text("doctor", tmp_path / "new" / "cache")
    assert not (tmp_path / "new").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    assert "other files (file)" in text("doctor", tmp_path / "other", status=1)
    assert "may still take" in text("doctor", tmp_path / "new", "--capacity", "4096TiB", status=1)
    os.chmod(cache / "shale.data", 0o644)
    (cache / "shale.index.new").write_text("")
    notes = text("doctor", cache)
    assert "every user" in notes and "shale.index.new" in notes
    limited = subprocess.run(
        ["bash", "-c", f"ulimit -v 4000000; exec '{TOOL}' doctor '{tmp_path}/new'"], capture_output=True, timeout=LIMIT
    )
    assert limited.returncode == 1 and b"ulimit -v" in limited.stdout


def lock_byte(file, kind, byte):
    """As a handle does, for this description of the file."""
    fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0))


def findings(*arguments, status=0, **more):
    """The doctor's findings, by what they are about."""
    found = {}
    for line in text("doctor", "--json", *arguments, status=status, **more).splitlines():
        finding = json.loads(line)
        found.setdefault(finding["about"], []).append((finding["grade"], finding["text"]))
    return found


def test_doctor_shows_who_shares_a_cache(cache, tmp_path):
    found = findings(cache)
    assert found["others"] == [("good", "no process has it open")]
    assert found["abilities"] == [("good", "locks, fallocate, hole punching and MADV_WIPEONFORK work")]
    assert f"shale.data {os.geteuid()}:{os.getegid()} 600" in found["users"][0][1]
    assert re.fullmatch(r"version \d+, which all .*", found["index"][0][1])
    # The bytes of format.md, as handles lock them.
    with open(cache / "shale.data", "r+b") as file:
        for byte, words in [(1, "writers"), (2, "writers and readers")]:
            lock_byte(file, fcntl.F_RDLCK, (1 << 60) + byte)
            assert findings(cache)["others"] == [("good", "opened by " + words)]
        with open(cache / "shale.index", "r+b") as first, open(cache / "shale.index", "r+b") as second:
            lock_byte(first, fcntl.F_WRLCK, (1 << 61) + 17)
            assert findings(cache)["others"] == [("good", "opened by a writer and readers")]
            lock_byte(second, fcntl.F_WRLCK, (1 << 61) + (1 << 30) - 2)
            assert findings(cache)["others"] == [("good", "opened by 2 writers and readers")]
    assert findings(cache)["others"] == [("good", "no process has it open")]
    top = subprocess.Popen([TOOL, "top", cache, "--interval", "20ms"], stdout=subprocess.PIPE)
    try:
        top.stdout.readline()
        assert findings(cache)["others"] == [("good", "opened by readers")]
    finally:
        top.send_signal(signal.SIGINT)
        top.stdout.close()
        top.wait(LIMIT)
    assert "others" not in findings(tmp_path / "new")
    assert list(cache.parent.iterdir()) == [cache]


def test_doctor_knows_limits_of_descriptors(cache):
    done = subprocess.run(
        ["bash", "-c", f"ulimit -n 40; exec '{TOOL}' doctor '{cache}'"], capture_output=True, timeout=LIMIT
    )
    assert done.returncode == 0 and b"ulimit -n is 40" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_doctor_knows_other_users():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        cache = f"{folder}/cache"
        run("set", cache, "key", "value", "--create")
        os.chmod(cache, 0o755)
        for name in ("shale.data", "shale.index"):
            os.chmod(f"{cache}/{name}", 0o644)
        found = findings(cache, user=65534)
        assert "only read-only handles" in found["directory"][0][1] and "not checked" in found["abilities"][0][1]
        for name in ("shale.data", "shale.index"):
            os.chown(f"{cache}/{name}", 65533, 65533)
        assert ("problem", "the cache belongs to user 65533: only that user may open it") in findings(cache, status=1)[
            "users"
        ]


@pytest.mark.skipif(
    subprocess.run(["unshare", "--user", "--mount", "--map-root-user", "true"], capture_output=True).returncode != 0,
    reason="no right to create namespaces",
)
def test_doctor_in_containers(tmp_path):
    """A read-only volume, an overlay, a file system in memory, and users that the container does not know."""
    cache = tmp_path / "cache"
    run("set", cache, "key", "value", "--create")
    for name in ("merged", "upper", "work"):
        (tmp_path / name).mkdir()

    def inside(script, status=0):
        command = ["unshare", "--user", "--mount", "--map-root-user", "sh", "-ec", script, TOOL, cache, tmp_path]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT, text=True)
        assert done.returncode == status, done
        return done.stdout

    said = inside('mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; "$0" doctor "$1"')
    assert "mounted read-only" in said and "not checked" in said and "opens: 1 entries" in said
    assert "tmpfs: in memory" in inside('mount -t tmpfs none "$2/merged"; "$0" doctor "$2/merged"')
    options = "lowerdir=$1,upperdir=$2/upper,workdir=$2/work"
    said = inside(f'mount -t overlay none -o "{options}" "$2/merged" || exit 0; "$0" doctor "$2/merged"')
    assert said == "" or "overlayfs" in said
    if os.geteuid() == 0:
        for name in ("shale.data", "shale.index"):
            os.chown(cache / name, 65533, 65533)
            os.chmod(cache / name, 0o666)
        assert "does not map" in inside('"$0" doctor "$1"', status=1)


# Terminals


def on_a_terminal(*arguments, **environment):
    """The output on a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [TOOL, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **environment}
    )
    os.close(slave)
    shown = b""
    while select.select([master], [], [], LIMIT)[0]:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert process.wait(LIMIT) == 0
    return shown


def test_colours_on_a_terminal_only(cache):
    assert b"\x1b[1m" in on_a_terminal("stats", cache)
    assert b"\x1b" not in on_a_terminal("stats", cache, NO_COLOR="1")
    assert "\x1b" not in text("stats", cache)
    assert b"\x1b[32m" in on_a_terminal("doctor", cache)


def test_progress_on_a_terminal_only(cache, tmp_path):
    file = tmp_path / "lines"
    assert b"exporting [" in on_a_terminal("export", cache, "-o", file)
    assert b"importing, bytes [" in on_a_terminal("import", cache, file)
    assert b"[" not in run("import", cache, file).stderr


def test_completion():
    for shell in ["bash", "zsh", "fish"]:
        script = text("--generate-completion-script", shell)
        assert all(name in script for name in [*COMMANDS, "doctor", "tags"])
    script = run("--generate-completion-script", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, check=True, timeout=LIMIT)


def test_it_needs_only_libc():
    needed = subprocess.run(["objdump", "-p", TOOL], capture_output=True, text=True, check=True).stdout
    libraries = {line.split()[1] for line in needed.splitlines() if "NEEDED" in line}
    assert libraries <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}


# Documents


def test_the_documents_have_every_command_option_and_status():
    here = Path(__file__).resolve().parent
    manual = (here / "../../Documentation/man/shale.1").read_text()
    readme = (here / "../README.md").read_text()
    for name in [*COMMANDS, "doctor", "tags"]:
        assert re.search(rf"^\.Cm (\w+ \| )?{name}\b", manual, re.MULTILINE), name
        assert re.search(rf"^\.It Cm {name}$", manual, re.MULTILINE), name
        assert f"`{name}" in readme, name
        shown = re.findall(r"^  (?:-\w, )?--([\w-]+)", text("help", name), re.MULTILINE)
        assert all(f"Fl -{option}" in manual or f", -{option}" in manual for option in shown), (name, shown)
    section = manual[manual.index(".Sh EXIT STATUS") : manual.index(".Sh EXAMPLES")]
    statuses = re.findall(r"^\.It (\d+)$", section, re.MULTILINE)
    source = (here / "../Sources/ShaleTool/Tool.swift").read_text()
    assert {int(status) for status in statuses} == {0, 64, *map(int, re.findall(r"    case \w+ = (\d+)", source))}
    assert all(status in text("--help") for status in statuses)
