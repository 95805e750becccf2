"""The version, which a build reads without loading the library."""

__version__ = "0.1.0"
