"""Loading through the cache: when several callers miss a key, one loads it.

python loading.py DIRECTORY
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import shale


def main(directory: str) -> None:
    loads = []

    def download() -> str:
        loads.append("page")
        return "its text"

    with shale.Cache(directory, capacity="64MiB") as cache:

        def read(_: int) -> str:
            return str(cache.get_or_load("page", download, max_age=60, stale=600))

        # Threads of this process; other processes with the directory open would wait for the same load.
        with ThreadPoolExecutor(8) as threads:
            print("read:", set(threads.map(read, range(100))))
        print("loads:", len(loads))

        # Caches the results of a function by its arguments.
        @cache.memoize(max_age=300, name="squares")
        def square(number: int) -> int:
            print("working")
            return number * number

        print(square(12), square(12))


if __name__ == "__main__":
    main(sys.argv[1])
