/// Why there is no loaded value, or a stale one in its place. What a loader throws is thrown as it is.
///
/// Keys are described as `String(describing:)` does, with the name of their cache where it has one.
public enum LoadError: Error, Sendable {
    /// A loader asked for a key whose load waits for it: the keys from the one that was asked for, each of which
    /// waits for the next, to the same one again.
    ///
    /// Thrown at once, where the loader asks, whatever the policy. Loads of this process are seen, through whichever
    /// cache objects they were begun; what a loader asks for from a detached task is not, nor a cycle through other
    /// processes.
    case cycle(keys: [String])
}

extension LoadError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .cycle(let keys): "a load waits for itself: \(keys.joined(separator: " → "))"
        }
    }
}
