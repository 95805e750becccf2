import Testing
@testable import ShaleHTTP
@Test func nothing() {}
