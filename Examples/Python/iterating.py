"""Iterating over all entries: keys, values, and the metadata of an entry.

python iterating.py DIRECTORY
"""

import sys

import shale


def main(directory: str) -> None:
    with shale.Cache(directory, capacity="64MiB") as cache:
        cache.set_many({("square", number): number * number for number in range(1, 4)})
        cache.set("page", "its text", max_age=60, tag="news")

        # In unspecified order, also while others write. The order of use does not change.
        for key, value in cache.items():
            print(key, "is", value)
        print(len(cache), "entries")

        entry = cache.entry("page")
        assert entry is not None
        print("page:", entry.value, "for", round(entry.expires - entry.created), "seconds")


if __name__ == "__main__":
    main(sys.argv[1])
