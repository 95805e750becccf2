"""The forms of keys, values and options, and the records of the library's results."""
