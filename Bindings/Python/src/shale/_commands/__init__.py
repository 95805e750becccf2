"""The commands of ``python -m shale``: a module each, with ``add_to``, which adds its parser, and
``run``, which returns the exit status."""
