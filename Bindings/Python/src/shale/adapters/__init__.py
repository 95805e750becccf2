"""Shale behind the interfaces of other libraries, one module for each."""
