import Foundation
import Testing

/// The program in Examples/FirstCache, built together with these tests.
@Suite("Examples", .timeLimit(.minutes(30)))
struct ExampleTests {
    @Test("FirstCache prints what it stored, loaded and removed")
    func firstCache() throws {
        let directory = Directory(), output = Pipe(), process = Process()
        process.executableURL = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
            .appendingPathComponent("FirstCache")
        process.arguments = [directory.url.path]
        process.standardOutput = output
        try process.run()
        let printed = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0)
        #expect(
            String(decoding: printed, as: UTF8.self) == """
                slate: 5
                marl: nothing
                \(String(repeating: "Marl ", count: 10))loads: 1
                left: ["marl"]

                """)
    }
}
