#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

extension ShaleError: LocalizedError {
    public var errorDescription: String? { description }
}

extension LoadError: LocalizedError {
    public var errorDescription: String? { description }
}
