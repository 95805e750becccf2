import Foundation
import Testing

@Suite("A planted race")
struct PlantedRaceTests {
    @Test(
        "two threads count without a lock",
        .enabled(
            if: ProcessInfo.processInfo.environment["SHALE_TEST_RACE"] != nil,
            "Scripts/sanitize-swift runs it by itself, to see ThreadSanitizer report it"))
    func race() {
        nonisolated(unsafe) var count = 0
        let counted = DispatchGroup()
        for _ in 0..<2 { counted.enter() }
        for _ in 0..<2 {
            Thread.detachNewThread {
                count += 1
                counted.leave()
                // A thread that ends before the other starts is ordered before it.
                counted.wait()
            }
        }
        counted.wait()
    }
}
