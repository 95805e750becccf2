"""One exception for each code of the library, each with a real cause."""

from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import copy as copied
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE
from support import REPOSITORY, SMALL, child_environment, run_child

import shale
from shale._native import errors, library

CLASSES = {
    -1: shale.InvalidError,
    -2: shale.TooLargeError,
    -3: shale.FullError,
    -4: shale.OutOfMemoryError,
    -5: shale.SystemCallError,
    -6: shale.FormatError,
    -7: shale.VersionError,
    -8: shale.BusyError,
    -9: shale.FilesystemError,
    -10: shale.PermissionDeniedError,
}


def test_every_code_has_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    # The errno of an earlier failure of this thread.
    monkeypatch.setattr(library, "last_errno", lambda: 0)
    for code, kind in CLASSES.items():
        error = errors.failure(code)
        assert type(error) is kind
        assert error.code == code
        assert str(error)
    assert type(errors.failure(-999)) is shale.Error


def kinds(base: type[shale.Error]) -> list[type[shale.Error]]:
    return [base, *(kind for each in base.__subclasses__() for kind in kinds(each))]


def shape(error: Any) -> tuple[Any, ...]:
    names = "errno", "strerror", "filename", "key", "timeout", "chain"
    return type(error), str(error), *(getattr(error, name, None) for name in names)


def test_errors_cross_processes() -> None:
    made: list[shale.Error] = [
        kind("a text", errno.ENOSPC, "/a/path")
        for kind in kinds(shale.Error)
        if kind.__init__ is shale.Error.__init__
    ]
    assert {type(error) for error in made} > set(CLASSES.values())
    for error in made:
        assert shape(error)[1:5] == (
            "a text",
            errno.ENOSPC,
            os.strerror(errno.ENOSPC),
            "/a/path",
        )
    made += [
        shale.LoadTimeoutError("k", 1.5),
        shale.LockTimeoutError(("k", 1), 2),
        shale.DeadlockError(["a", "b"]),
    ]
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        returned = executor.submit(list, made).result(PATIENCE)
    for error, other in zip(made, returned):
        for again in (other, pickle.loads(pickle.dumps(error)), copied(error)):
            assert shape(again) == shape(error)


def test_arguments_out_of_range_are_value_errors() -> None:
    assert issubclass(shale.InvalidError, ValueError)
    assert issubclass(shale.TooLargeError, ValueError)


def test_invalid_names_the_cause(directory: Path) -> None:
    with (
        shale.Cache(directory, capacity=SMALL, shards=1),
        pytest.raises(shale.InvalidError) as raised,
    ):
        shale.Cache(directory, shards=2)
    assert str(raised.value)


def test_too_large(cache: shale.Cache) -> None:
    with pytest.raises(shale.TooLargeError):
        cache[b"k" * 65_536] = 1
    cache[b"k" * 65_535] = 1
    with pytest.raises(shale.TooLargeError):
        cache["k"] = bytes((2 << 20) + 1)
    with pytest.raises(shale.TooLargeError):
        cache.get(b"k" * 65_536)


def test_full_of_pinned_entries(directory: Path) -> None:
    with shale.Cache(directory, capacity="1MiB") as cache:
        with pytest.raises(shale.FullError):
            for number in range(2000):
                cache.set(number, os.urandom(2000), pinned=True)
        assert len(cache[0]) == 2000
        cache.clear()
        cache["k"] = 1
        assert cache["k"] == 1


def test_out_of_memory(directory: Path) -> None:
    with shale.Cache(directory, capacity="256MiB") as cache:
        cache["k"] = os.urandom(48 << 20)
    script = """
        import re, resource, sys
        import shale
        cache = shale.Cache(sys.argv[1])
        used = int(re.search(r"VmSize:\\s*(\\d+)", open("/proc/self/status").read())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), resource.RLIM_INFINITY))
        try:
            cache.get("k")
        except MemoryError as error:
            print(type(error).__name__, error.code)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        print(len(cache["k"]))
    """
    assert run_child(script, directory).split() == ["OutOfMemoryError", "-4", str(48 << 20)]


def test_system_call_that_fails(directory: Path) -> None:
    # A name that is too long for any file system.
    path = directory / ("x" * 300)
    with pytest.raises(OSError) as raised:
        shale.Cache(path)
    assert type(raised.value) is shale.SystemCallError
    assert raised.value.errno == errno.ENAMETOOLONG
    assert raised.value.strerror == os.strerror(errno.ENAMETOOLONG)
    assert raised.value.filename == str(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("option", ["must_exist", "read_only"])
def test_a_cache_that_is_not_there(directory: Path, option: str) -> None:
    def open_it() -> None:
        with pytest.raises(FileNotFoundError, match=re.escape(str(directory))) as raised:
            shale.Cache(directory, **{option: True})  # type: ignore[arg-type]
        assert type(raised.value) is shale.NotFoundError
        assert isinstance(raised.value, shale.SystemCallError)
        assert (raised.value.code, raised.value.errno) == (-5, errno.ENOENT)
        assert raised.value.filename == str(directory)

    open_it()
    assert not directory.exists()
    directory.mkdir()
    open_it()


def test_format_of_a_directory_with_other_files(directory: Path) -> None:
    directory.mkdir()
    (directory / "letter.txt").write_text("dear")
    with pytest.raises(shale.FormatError) as raised:
        shale.Cache(directory)
    assert str(directory) in str(raised.value)
    assert raised.value.filename == str(directory)
    assert [each.name for each in directory.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("step", [-1, 1])
def test_version_of_another_format(directory: Path, step: int) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        cache["k"] = 1
    data = bytearray((directory / "shale.data").read_bytes())
    # The two copies of the superblock: eight bytes of magic, then the format's number.
    for copy in (0, 2048):
        data[copy + 8] += step
    (directory / "shale.data").write_bytes(data)
    with pytest.raises(shale.VersionError) as raised:
        shale.Cache(directory)
    assert str(directory) in str(raised.value)
    assert (directory / "shale.data").read_bytes() == data


def test_busy_while_another_process_writes(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        cache["k"] = 1
        script = """
            import sys, shale
            try:
                shale.Cache(sys.argv[1], capacity="4MiB")
            except shale.BusyError as error:
                print(error.code)
        """
        assert run_child(script, directory).strip() == "-8"


def test_directory_that_was_removed(directory: Path) -> None:
    with shale.Cache[str, str](directory, capacity=SMALL) as cache:
        cache["key"] = "old"
        shutil.rmtree(directory)
        with shale.Cache[str, str](directory, capacity=SMALL) as new:
            new["key"] = "new"
            with pytest.raises(
                shale.BusyError, match="removed or replaced; open it again"
            ) as raised:
                for _ in range(40):  # it checks once a second
                    cache["other"] = "value"
                    time.sleep(0.1)
            assert str(directory) in str(raised.value)
            assert cache["key"] == "old"  # hits are served
            for call in (
                lambda: cache.get("missing"),
                lambda: "missing" in cache,
                lambda: cache.get_or_load("missing", lambda: "loaded"),
                lambda: list(cache),
                cache.stats,
                cache.sync,
            ):
                with pytest.raises(shale.BusyError):
                    call()
            assert new["key"] == "new"
    with shale.Cache[str, str](directory) as cache:
        assert dict(cache) == {"key": "new"}


def test_another_capacity_can_be_accepted(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with shale.Cache(directory, capacity=SMALL, max_entries=1000) as cache:
        cache["k"] = 1
        asked: Any
        for asked in ({"capacity": "4MiB"}, {"max_entries": 10}):
            caplog.clear()
            with shale.Cache(directory, accept_capacity=True, **asked) as other:
                assert (other.stats().capacity, other.stats().max_entries) == (8 << 20, 1000)
                assert other["k"] == 1
            (record,) = caplog.records
            assert record.name == "shale"
            assert record.levelname == "WARNING"
            assert str(directory) in record.getMessage()
        caplog.clear()
        with shale.Cache(directory, accept_capacity=True, capacity=SMALL, max_entries=1000):
            pass
        with shale.Cache(directory, accept_capacity=True):
            pass
        assert not caplog.records
    # Without other users it is applied.
    with shale.Cache(directory, accept_capacity=True, capacity="4MiB") as cache:
        assert cache.stats().capacity == 4 << 20
    assert not caplog.records


def test_file_system_that_cannot_share_mappings(directory: Path, tmp_path: Path) -> None:
    """A preloaded library that reports every file system as NFS."""
    compiler = shutil.which("cc")
    if compiler is None or not os.path.exists("/proc/self"):
        pytest.skip("needs a C compiler and Linux")
    source = tmp_path / "nfs.c"
    source.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <sys/vfs.h>
        int fstatfs(int fd, struct statfs *found) {
            int (*real)(int, struct statfs *) = dlsym(RTLD_NEXT, "fstatfs");
            int status = real(fd, found);
            found->f_type = 0x6969;
            return status;
        }
        int fstatfs64(int fd, struct statfs64 *found) {
            int (*real)(int, struct statfs64 *) = dlsym(RTLD_NEXT, "fstatfs64");
            int status = real(fd, found);
            found->f_type = 0x6969;
            return status;
        }
        int statfs(const char *path, struct statfs *found) {
            int (*real)(const char *, struct statfs *) = dlsym(RTLD_NEXT, "statfs");
            int status = real(path, found);
            found->f_type = 0x6969;
            return status;
        }
        """
    )
    shim = tmp_path / "nfs.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", source, "-o", shim, "-ldl"], check=True)
    script = """
        import sys, shale
        try:
            shale.Cache(sys.argv[1])
        except shale.FilesystemError as error:
            print(error.code)
    """
    environment = child_environment(LD_PRELOAD=str(shim))
    assert run_child(script, directory, environment=environment).strip() == "-9"


def test_permission_of_a_read_only_handle(directory: Path) -> None:
    shale.Cache(directory, capacity=SMALL).close()
    with shale.Cache(directory, read_only=True) as cache:
        for call in (cache.clear, cache.purge, lambda: cache.remove("k"), lambda: cache.evict(1)):
            with pytest.raises(
                shale.PermissionDeniedError, match="without read_only=True"
            ) as raised:
                call()
            assert isinstance(raised.value, PermissionError)
            assert (raised.value.errno, raised.value.filename) == (errno.EACCES, None)


def test_permission_of_a_directory(directory: Path) -> None:
    """A file that is no regular file: root may open any other."""
    directory.mkdir()
    os.mkfifo(directory / "shale.data")
    with pytest.raises(PermissionError) as raised:
        shale.Cache(directory)
    assert type(raised.value) is shale.PermissionDeniedError
    assert (raised.value.errno, raised.value.filename) == (errno.EACCES, str(directory))


def test_a_place_for_a_directory_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    for place in (path, path / "below"):
        with pytest.raises(NotADirectoryError, match=re.escape(str(place))) as raised:
            shale.Cache(place)
        assert type(raised.value) is shale.NotDirectoryError
        assert isinstance(raised.value, shale.SystemCallError)
        assert (raised.value.errno, raised.value.filename) == (errno.ENOTDIR, str(place))
    assert path.read_text() == "x"


C_WORDS = re.compile(
    r"SHALE_|shale_[a-z]|NULL|struct_size|raise \w+_ms|\b(pass|leave them|use) (0|none)\b"
)


def test_texts_speak_python(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        calls: list[Callable[[], object]] = [
            lambda: shale.Cache(directory, shards=2),
            lambda: shale.Cache(directory, segment_size="4MiB"),
            lambda: shale.Cache(directory, eviction="clock"),
            lambda: shale.Cache(directory, eviction="lru", capacity="1PiB"),
            lambda: shale.Cache(directory, read_only=True, capacity=SMALL),
            lambda: shale.Cache(directory, must_exist=True, mode=0o7777),
            lambda: shale.Cache(directory / "none", must_exist=True),
            lambda: cache.set("k", 1, tag=""),
        ]
        for call in calls:
            with pytest.raises(shale.Error) as raised:
                call()
            assert not C_WORDS.search(str(raised.value)), raised.value


def test_all_advice_of_the_library_is_known() -> None:
    sources = REPOSITORY / "Sources" / "ShaleCore"
    advice = {
        literal.rpartition("; ")[2]
        for file in sources.rglob("*.swift")
        for literal in re.findall(r'"([^"\n]*)"', file.read_text())
        if C_WORDS.search(literal) and " " in literal
    }
    assert advice
    assert advice == set(errors._ADVICE)
    assert not any(map(C_WORDS.search, errors._ADVICE.values()))


def test_a_path_is_not_advice(tmp_path: Path) -> None:
    path = tmp_path / "x; leave them 0"
    path.write_text("a file")
    with pytest.raises(shale.Error, match="x; leave them 0"):
        shale.Cache(path)


def test_texts_belong_to_their_thread(cache: shale.Cache) -> None:
    import threading

    texts: list[str] = []

    def fail() -> None:
        try:
            cache[b"k" * 65_536] = 1
        except shale.TooLargeError as error:
            texts.append(str(error))

    threads = [threading.Thread(target=fail) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4
    assert len(set(texts)) == 1
