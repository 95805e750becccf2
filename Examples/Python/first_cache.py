"""A first cache: open, store, read, invalidate.

python first_cache.py DIRECTORY
"""

import sys

import shale


def main(directory: str) -> None:
    with shale.Cache(directory, capacity="64MiB", max_age=3600) as cache:
        cache["slate"] = {"hardness": 5.5, "found in": ["Wales", "Spain"]}
        print("slate:", cache["slate"])
        print("marl:", cache.get("marl", default="nothing"))

        # Invalidates all entries with a tag.
        cache.set("page", b"bytes", max_age=60, tag="news")
        cache.invalidate("news")
        print("page:", cache.get("page", default="nothing"))

        try:
            cache["page"] = object()
        except TypeError as error:
            # The message names the types that can be stored, and the way to store others.
            print("refused:", type(error).__name__)


if __name__ == "__main__":
    main(sys.argv[1])
