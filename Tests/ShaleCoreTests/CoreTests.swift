import Testing

/// One after the other: some of these interrupt readers by hooks that are the whole process's.
@Suite("Core", .serialized)
struct CoreTests {}
