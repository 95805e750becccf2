"""Calls on an open cache, leases, locks and events."""
