/// Something did not work; the sentence says what, and why.
struct Failure: Error, CustomStringConvertible {
    let description: String
}
