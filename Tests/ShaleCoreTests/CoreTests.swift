import Testing

/// One after the other: some of these interrupt readers by hooks of the whole process.
@Suite("Core", .serialized)
struct CoreTests {}
