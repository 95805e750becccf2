"""The benchmark of ``python -m shale bench``: stores, workloads, and what is written about them."""
