"""Interfaces of other cache libraries, on Shale."""
