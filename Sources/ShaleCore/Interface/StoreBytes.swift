#if !hasFeature(Embedded)
/// A key, a value or a tag: bytes that are borrowed for a call.
public protocol StoreBytes {
    func withStoreBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R
}

extension StoreBytes where Self: Sequence, Self.Element == UInt8 {
    @inlinable
    public func withStoreBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        var result: Result<R, E>?
        let contiguous: Void? = withContiguousStorageIfAvailable { buffer in
            do throws(E) { result = .success(try body(UnsafeRawBufferPointer(buffer))) } catch {
                result = .failure(error)
            }
        }
        if contiguous == nil { return try ContiguousArray(self).withStoreBytes(body) }
        return try result.unsafelyUnwrapped.get()
    }
}

extension Array: StoreBytes where Element == UInt8 {}
extension ArraySlice: StoreBytes where Element == UInt8 {}
extension ContiguousArray: StoreBytes where Element == UInt8 {}

/// Its UTF-8 bytes.
extension String: StoreBytes {
    @inlinable
    public func withStoreBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        var copy = self
        var result: Result<R, E>?
        copy.withUTF8 { buffer in
            do throws(E) { result = .success(try body(UnsafeRawBufferPointer(buffer))) } catch {
                result = .failure(error)
            }
        }
        return try result.unsafelyUnwrapped.get()
    }
}

extension UnsafeRawBufferPointer: StoreBytes {
    @inlinable
    public func withStoreBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        try body(self)
    }
}
#endif
