/// An error with a message.
struct Failure: Error, CustomStringConvertible {
    let description: String
}
