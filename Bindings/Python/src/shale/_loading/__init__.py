"""Loads: of all callers that miss a key, one loads it."""
