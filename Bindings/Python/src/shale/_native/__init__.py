"""The C interface: functions, structs, handles, buffers and errors."""
