"""Reads what the benchmark program wrote."""

import json
import statistics
from pathlib import Path


class Results:
    def __init__(self, path):
        whole = json.loads(Path(path).read_text())
        if whole.get("schema") != 1:
            raise SystemExit(f"{path}: another schema")
        self.machine, self.options = whole["machine"], whole["options"]
        self.peers, self.missing, self.failures = whole["peers"], whole["missing"], whole["failures"]
        self.data = {entry["name"]: entry for entry in whole["data"]}
        self.samples = {(f["data"], f["peer"], f["work"], f["metric"]): f["samples"] for f in whole["results"]}

    def median(self, data, peer, work, metric="rate"):
        """None where it was not measured."""
        samples = self.samples.get((data, peer, work, metric))
        return statistics.median(samples) if samples else None

    def ratio(self, data, one, other, work, metric="rate", other_work=None):
        """The median of the rounds' ratios where both were in the same rounds, else the ratio of the medians."""
        a = self.samples.get((data, one, work, metric))
        b = self.samples.get((data, other, other_work or work, metric))
        if not a or not b or not statistics.median(b):
            return None
        if len(a) == len(b) and all(b):
            return statistics.median(x / y for x, y in zip(a, b))
        return statistics.median(a) / statistics.median(b)
