/* shale.hpp - shale.h for C++17 and later: RAII handles, views of bytes, results instead of exceptions. Header only:
 * link libshale as from C.
 *
 *     auto cache = shale::Cache::open("/var/cache/app");
 *     if (!cache)
 *         return fail(cache.error().message());
 *     shale::SetOptions options;
 *     options.max_age = std::chrono::minutes(5);
 *     if (auto set = cache->set("key", "value", options); !set)
 *         return fail(set.error().message());
 *     if (auto found = cache->get("key"); found && *found)
 *         std::cout << (*found)->text();
 *
 * shale.h documents each call, its errors, and the rules for threads, processes and fork(). This header differs in:
 *   - Errors are in the Result. Misses and failed conditions are not errors.
 *   - No function throws. The standard allocator provides the strings and vectors that functions return; it throws or,
 *     with -fno-exceptions, ends the program. The engine itself returns Errc::memory.
 *   - Handles can be moved, not copied. A call on a moved-from or closed handle returns Errc::invalid.
 *   - A handle must outlive its leases and cursors, even after it was moved.
 */
#ifndef SHALE_HPP
#define SHALE_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "shale.h"

namespace shale {

/* The errors of shale.h, with its numbers. A later library may return others. */
enum class Errc : std::int32_t {
    invalid = SHALE_E_INVALID,
    too_large = SHALE_E_TOO_LARGE,
    full = SHALE_E_FULL,
    memory = SHALE_E_MEMORY,
    io = SHALE_E_IO,
    format = SHALE_E_FORMAT,
    version = SHALE_E_VERSION,
    busy = SHALE_E_BUSY,
    filesystem = SHALE_E_FILESYSTEM,
    permission = SHALE_E_PERMISSION,
};

class Error {
  public:
    /* What this thread's last call, which answered `status`, has left in shale_last_error(). */
    explicit Error(shale_status status)
        : code_(static_cast<Errc>(status)), errno_(shale_last_errno()), message_(shale_last_error()) {
    }

    Errc code() const noexcept {
        return code_;
    }
    /* Of the system call that failed, or 0. */
    int system_errno() const noexcept {
        return errno_;
    }
    /* The sentence: what failed, on which path, why, and what to do. */
    const std::string &message() const noexcept {
        return message_;
    }

  private:
    Errc code_;
    int errno_;
    std::string message_;
};

/* A value or an error. Reading the absent one ends the program. */
template <class T> class [[nodiscard]] Result {
  public:
    Result(T value) : held_(std::in_place_index<0>, std::move(value)) {
    }
    Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {
    }

    bool ok() const noexcept {
        return held_.index() == 0;
    }
    explicit operator bool() const noexcept {
        return ok();
    }

    T &operator*() & {
        return *checked(std::get_if<0>(&held_));
    }
    const T &operator*() const & {
        return *checked(std::get_if<0>(&held_));
    }
    /* By value: a loop over `*cache.get_many(keys)` is sound. */
    T operator*() && {
        return std::move(*checked(std::get_if<0>(&held_)));
    }
    T *operator->() {
        return checked(std::get_if<0>(&held_));
    }
    const T *operator->() const {
        return checked(std::get_if<0>(&held_));
    }
    const Error &error() const {
        return *checked(std::get_if<1>(&held_));
    }

  private:
    template <class U> U *checked(U *wanted) const {
        if (!wanted) {
            std::fprintf(stderr, "shale::Result: %s\n",
                         ok() ? "error() where there is none" : std::get_if<1>(&held_)->message().c_str());
            std::abort();
        }
        return wanted;
    }
    std::variant<T, Error> held_;
};

/* Success, or an error. */
template <> class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {
    }

    bool ok() const noexcept {
        return !error_;
    }
    explicit operator bool() const noexcept {
        return ok();
    }
    const Error &error() const {
        if (!error_) {
            std::fputs("shale::Result: error() where there is none\n", stderr);
            std::abort();
        }
        return *error_;
    }

  private:
    std::optional<Error> error_;
};

/* A view of bytes: a key, a value, a tag. A C string is taken without its terminating 0. */
class Bytes {
  public:
    constexpr Bytes() noexcept = default;
    constexpr Bytes(const void *data, std::size_t size) noexcept : data_(data), size_(size) {
    }
    Bytes(const char *text) noexcept : Bytes(text, std::strlen(text)) {
    }
    /* Any contiguous container of bytes or characters: string, string_view, vector, array, span. */
    template <class C, class E = std::remove_pointer_t<decltype(std::declval<const C &>().data())>,
              class = std::enable_if_t<sizeof(E) == 1 && std::is_trivially_copyable_v<E>>,
              class = decltype(std::declval<const C &>().size())>
    constexpr Bytes(const C &bytes) noexcept : Bytes(bytes.data(), bytes.size()) {
    }

    const void *data() const noexcept {
        return data_;
    }
    std::size_t size() const noexcept {
        return size_;
    }

  private:
    const void *data_ = nullptr;
    std::size_t size_ = 0;
};

/* An age: any duration of std::chrono, in whole milliseconds; less than one counts as one, zero as none(). */
class Age {
  public:
    /* The cache's default. */
    constexpr Age() noexcept = default;
    template <class Rep, class Period>
    constexpr Age(std::chrono::duration<Rep, Period> duration) noexcept : milliseconds_(whole(duration)) {
    }

    static constexpr Age never() noexcept {
        return Age(SHALE_NEVER);
    }
    /* As a max age: stale at once. As a stale period: not kept past its age. */
    static constexpr Age none() noexcept {
        return Age(static_cast<std::int64_t>(SHALE_NONE));
    }
    /* As shale.h has it. */
    constexpr std::int64_t milliseconds() const noexcept {
        return milliseconds_;
    }

  private:
    explicit constexpr Age(std::int64_t milliseconds) noexcept : milliseconds_(milliseconds) {
    }
    template <class D> static constexpr std::int64_t whole(D duration) noexcept {
        using Wide = std::chrono::duration<long double, std::milli>;
        if (duration < D::zero())
            return -2; // an error, where -1 would be none()
        if (duration == D::zero())
            return SHALE_NONE;
        if (Wide(duration) >= Wide(9.2e18L))
            return SHALE_NEVER;
        return std::chrono::ceil<std::chrono::duration<std::int64_t, std::milli>>(duration).count();
    }
    std::int64_t milliseconds_ = 0;
};

enum class Compression : std::int32_t {
    dictionary = SHALE_COMPRESSION_DICTIONARY,
    lz4 = SHALE_COMPRESSION_LZ4,
    none = SHALE_COMPRESSION_NONE,
    dense = SHALE_COMPRESSION_DENSE,
};

enum class Eviction : std::int32_t { lru = SHALE_EVICTION_LRU, clock = SHALE_EVICTION_CLOCK };

/* shale_options; 0 and Age() select the defaults. */
struct Options {
    std::uint64_t capacity = 0;
    std::uint64_t max_entries = 0;
    Age max_age;
    Age stale_for;
    std::uint32_t shards = 0;
    std::uint32_t segment_size = 0;
    std::uint32_t mode = 0;
    Compression compression = Compression::dictionary;
    Eviction eviction = Eviction::lru;
    bool read_only = false;
    bool must_exist = false;
    /* Whether the last close syncs. */
    bool syncs_at_close = true;
    std::int64_t (*now_ms)(void *context) = nullptr;
    void *now_context = nullptr;
    /* For how long a call waits for a lock; nothing: without end. */
    std::optional<std::chrono::milliseconds> lock_timeout;
    void (*on_wait)(void *context, const char *message) = nullptr;
    void *wait_context = nullptr;
    /* Of a new cache: what it may grow to with its index, for which address space is reserved; 0: four times its capacity. */
    std::uint64_t reserve_capacity = 0;
};

/* A fencing token: a set with it stores the value only if the key has not changed since; see shale_lease. */
struct Fence {
    std::uint64_t token = 0;
};

/* shale_set_options. At most one of the conditions if_... is set. */
struct SetOptions {
    Age max_age;
    Age stale_for;
    std::vector<Bytes> tags;
    Bytes meta;
    bool if_absent = false;
    bool if_present = false;
    std::optional<std::uint64_t> if_version;
    std::optional<Fence> if_unchanged;
    bool pinned = false;
    bool uncompressed = false;
};

/* Flags of reads, joined by |. */
enum class Read : std::uint32_t {
    normal = 0,
    stale = SHALE_GET_STALE,
    peek = SHALE_GET_PEEK,
    info = SHALE_GET_INFO,
    token = SHALE_GET_TOKEN,
};
constexpr Read operator|(Read a, Read b) noexcept {
    return static_cast<Read>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

enum class Found { miss, fresh, stale };

/* A value that was read, and its metadata. Later reads into it reuse its buffer; views of it are valid until then.
 * After Read::info only size() is set, not the bytes. */
class Value {
  public:
    Value() noexcept = default;
    Value(Value &&other) noexcept : held_(std::exchange(other.held_, shale_value SHALE_VALUE_INIT)) {
    }
    Value &operator=(Value &&other) noexcept {
        Value taken(std::move(other));
        std::swap(held_, taken.held_);
        return *this;
    }
    ~Value() {
        shale_value_free(&held_);
    }

    const void *data() const noexcept {
        return held_.data;
    }
    std::size_t size() const noexcept {
        return held_.size;
    }
    std::string_view text() const noexcept {
        return {static_cast<const char *>(held_.data), held_.size};
    }
    std::string_view meta() const noexcept {
        return {static_cast<const char *>(held_.meta), held_.meta_size};
    }
#if __cplusplus >= 202002L
    std::span<const std::byte> bytes() const noexcept {
        return {static_cast<const std::byte *>(held_.data), held_.size};
    }
#endif
    bool is_stale() const noexcept {
        return held_.flags & SHALE_VALUE_STALE;
    }
    bool is_pinned() const noexcept {
        return held_.flags & SHALE_VALUE_PINNED;
    }
    std::chrono::system_clock::time_point created() const {
        return point(held_.created_ms);
    }
    /* Nothing: never. */
    std::optional<std::chrono::system_clock::time_point> expires() const {
        if (held_.expires_ms == SHALE_NEVER)
            return std::nullopt;
        return point(held_.expires_ms);
    }
    std::uint64_t version() const noexcept {
        return held_.version;
    }
    std::uint64_t stored_size() const noexcept {
        return held_.stored_size;
    }
    /* After a miss with Read::token. */
    Fence fence() const noexcept {
        return {held_.version};
    }
    /* The struct of shale.h, also after a miss, when its flags say why. */
    const shale_value *raw() const noexcept {
        return &held_;
    }
    shale_value *raw() noexcept {
        return &held_;
    }

  private:
    static std::chrono::system_clock::time_point point(std::int64_t milliseconds) {
        return std::chrono::system_clock::time_point(std::chrono::milliseconds(milliseconds));
    }
    shale_value held_ = SHALE_VALUE_INIT;
};

namespace detail {
inline shale_bytes raw(Bytes bytes) {
    return {bytes.data(), bytes.size()};
}
inline std::vector<shale_bytes> raw(const std::vector<Bytes> &many) {
    std::vector<shale_bytes> all;
    all.reserve(many.size());
    for (Bytes each : many)
        all.push_back(raw(each));
    return all;
}
inline Result<void> done(shale_status status) {
    if (status < 0)
        return Error(status);
    return {};
}
/* The status of a call that did not fail. */
template <class T> Result<T> given(shale_status status, T value) {
    if (status < 0)
        return Error(status);
    return value;
}
/* True for OK, false for the other answers. */
inline Result<bool> answer(shale_status status) {
    return given(status, status == SHALE_OK);
}
inline Found found(shale_status status) {
    return status == SHALE_OK ? Found::fresh : status == SHALE_STALE ? Found::stale : Found::miss;
}
/* The options in the form of shale.h, with the memory that they point to. */
struct RawSetOptions {
    std::vector<shale_bytes> tags;
    shale_set_options raw{};

    explicit RawSetOptions(const SetOptions &options) : tags(detail::raw(options.tags)) {
        raw.struct_size = sizeof raw;
        raw.flags = (options.if_absent ? SHALE_SET_IF_ABSENT : 0) | (options.if_present ? SHALE_SET_IF_PRESENT : 0) |
                    (options.if_version ? SHALE_SET_IF_VERSION : 0) |
                    (options.if_unchanged ? SHALE_SET_IF_UNCHANGED : 0) | (options.pinned ? SHALE_SET_PINNED : 0) |
                    (options.uncompressed ? SHALE_SET_UNCOMPRESSED : 0);
        raw.max_age_ms = options.max_age.milliseconds();
        raw.stale_ms = options.stale_for.milliseconds();
        raw.version = options.if_unchanged ? options.if_unchanged->token : options.if_version.value_or(0);
        raw.meta = options.meta.data();
        raw.meta_size = options.meta.size();
        raw.tags = tags.data();
        raw.tag_count = tags.size();
    }
    RawSetOptions(const RawSetOptions &) = delete;
    RawSetOptions &operator=(const RawSetOptions &) = delete;
};
} // namespace detail

/* A walk over all entries, for one thread at a time. */
class Cursor {
  public:
    Cursor(Cursor &&other) noexcept
        : cursor_(std::exchange(other.cursor_, nullptr)), flags_(other.flags_), key_(std::move(other.key_)),
          value_(std::move(other.value_)) {
    }
    Cursor &operator=(Cursor &&other) noexcept {
        Cursor taken(std::move(other));
        std::swap(cursor_, taken.cursor_);
        std::swap(flags_, taken.flags_);
        std::swap(key_, taken.key_);
        std::swap(value_, taken.value_);
        return *this;
    }
    ~Cursor() {
        if (cursor_)
            shale_cursor_close(cursor_);
    }

    /* Goes to the next entry: false at the end. key() and value() hold until the next call. */
    Result<bool> next() {
        shale_status status = shale_cursor_next(cursor_, static_cast<std::uint32_t>(flags_), key_.raw(), value_.raw());
        return detail::given(status, status != SHALE_END);
    }
    std::string_view key() const noexcept {
        return key_.text();
    }
    const Value &value() const noexcept {
        return value_;
    }

  private:
    friend class Cache;
    Cursor(shale_cursor *cursor, Read flags) noexcept : cursor_(cursor), flags_(flags) {
    }
    shale_cursor *cursor_;
    Read flags_;
    Value key_, value_;
};

/* A lease for loading a key; its destructor releases it. */
class Lease {
  public:
    Lease(Lease &&other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), key_(std::move(other.key_)), token_(other.token_) {
    }
    Lease &operator=(Lease &&other) noexcept {
        Lease taken(std::move(other));
        std::swap(cache_, taken.cache_);
        std::swap(key_, taken.key_);
        std::swap(token_, taken.token_);
        return *this;
    }
    ~Lease() {
        if (cache_)
            shale_release(cache_, key_.data(), key_.size(), token_);
    }

    /* For SetOptions::if_unchanged. */
    Fence fence() const noexcept {
        return {token_};
    }
    /* Begins its time again; false where that was over. Nothing: 30 seconds. */
    Result<bool> renew(std::optional<std::chrono::milliseconds> time = {}) {
        return detail::answer(shale_renew(cache_, key_.data(), key_.size(), token_, time ? time->count() : 0));
    }

  private:
    friend class Cache;
    Lease(shale_cache *cache, Bytes key, std::uint64_t token)
        : cache_(cache), key_(static_cast<const char *>(key.data()), key.size()), token_(token) {
    }
    shale_cache *cache_;
    std::string key_;
    std::uint64_t token_;
};

/* shale_lease_options; absent values select the defaults. */
struct LeaseOptions {
    Read flags = Read::normal;
    std::optional<std::chrono::milliseconds> time;
    std::optional<std::chrono::milliseconds> wait;
    std::optional<std::chrono::milliseconds> refresh_ahead;
    bool recorded = false; /* SHALE_LEASE_RECORDED */
};

/* The result of a read that may have to load. */
struct Loading {
    Found found = Found::miss;
    Value value;
    /* Where it is for the caller to load. */
    std::optional<Lease> lease;
    bool unrecorded = false; /* with LeaseOptions::recorded: none was given, as it could not be recorded */
};

/* An open cache. Any thread may call any method, but no thread may move, close or destroy it while others use it. */
class Cache {
  public:
    /* Opens the cache in a directory, creating it unless Options::must_exist is set. */
    static Result<Cache> open(const std::string &directory, const Options &options = {}) {
        return open(directory.c_str(), options);
    }
    static Result<Cache> open(const char *directory, const Options &options = {}) {
        if (!directory)
            directory = ""; // an error, where NULL would be a cache in memory
        return open_raw(directory, options);
    }
    /* A new cache in memory, shared with later children of fork() alone. */
    static Result<Cache> in_memory(const Options &options = {}) {
        return open_raw(nullptr, options);
    }

    Cache(Cache &&other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {
    }
    /* Closes the cache that this had. */
    Cache &operator=(Cache &&other) noexcept {
        Cache taken(std::move(other));
        std::swap(cache_, taken.cache_);
        return *this;
    }
    /* Closes; what then fails is not told. */
    ~Cache() {
        shale_close(cache_);
    }

    Result<void> close() {
        return detail::done(shale_close(std::exchange(cache_, nullptr)));
    }
    Result<void> sync() {
        return detail::done(shale_sync(cache_));
    }
    /* For calls of shale.h. */
    shale_cache *raw() const noexcept {
        return cache_;
    }

    /* The value; nothing: a miss. */
    Result<std::optional<Value>> get(Bytes key, Read flags = Read::normal) {
        Value value;
        Result<Found> found = get_into(value, key, flags);
        if (!found)
            return found.error();
        if (*found == Found::miss)
            return std::optional<Value>();
        return std::optional<Value>(std::move(value));
    }
    /* The same into a value whose buffer is used again: a loop that reuses one does not allocate. */
    Result<Found> get_into(Value &value, Bytes key, Read flags = Read::normal) {
        shale_status status = shale_get(cache_, key.data(), key.size(), static_cast<std::uint32_t>(flags), value.raw());
        return detail::given(status, detail::found(status));
    }
    /* One for each key, in their order. The memory accesses overlap, so this costs much less than single calls. */
    Result<std::vector<std::optional<Value>>> get_many(const std::vector<Bytes> &keys, Read flags = Read::normal) {
        std::vector<shale_bytes> raw_keys = detail::raw(keys);
        std::vector<shale_value> raw(keys.size(), shale_value SHALE_VALUE_INIT);
        std::vector<shale_status> statuses(keys.size());
        shale_status status = shale_get_many(cache_, keys.size(), raw_keys.data(), static_cast<std::uint32_t>(flags),
                                             raw.data(), statuses.data());
        std::vector<std::optional<Value>> values(keys.size());
        for (std::size_t i = 0; i < keys.size(); i++) {
            Value value;
            *value.raw() = raw[i];
            if (statuses[i] == SHALE_OK || statuses[i] == SHALE_STALE)
                values[i] = std::move(value);
        }
        if (status < 0)
            return Error(status);
        return values;
    }

    /* The version that the value got; nothing: a condition did not hold, and nothing changed. */
    Result<std::optional<std::uint64_t>> set(Bytes key, Bytes value, const SetOptions &options = {}) {
        detail::RawSetOptions with(options);
        std::uint64_t version = 0;
        with.raw.new_version = &version;
        shale_status status = shale_set(cache_, key.data(), key.size(), value.data(), value.size(), &with.raw);
        if (status < 0)
            return Error(status);
        return status == SHALE_OK ? std::optional<std::uint64_t>(version) : std::nullopt;
    }
    /* Values under keys, each with the options; whether all were stored. Where a key fails, the others are stored. */
    Result<bool> set_many(const std::vector<std::pair<Bytes, Bytes>> &entries, const SetOptions &options = {}) {
        std::vector<shale_bytes> keys, values;
        for (const auto &[key, value] : entries) {
            keys.push_back(detail::raw(key));
            values.push_back(detail::raw(value));
        }
        detail::RawSetOptions with(options);
        std::vector<shale_status> statuses(entries.size());
        shale_status status = shale_set_many(cache_, entries.size(), keys.data(), values.data(), &with.raw,
                                             statuses.data());
        if (status < 0)
            return Error(status);
        for (shale_status each : statuses)
            if (each != SHALE_OK)
                return false;
        return true;
    }

    /* What each of these answers: whether there was an entry (with that version). */
    Result<bool> remove(Bytes key, std::optional<std::uint64_t> version = {}) {
        if (version && *version == 0)
            return false; // no entry has it, and shale.h takes it for any
        return detail::answer(shale_remove(cache_, key.data(), key.size(), version.value_or(0)));
    }
    Result<bool> expire(Bytes key) {
        return detail::answer(shale_expire(cache_, key.data(), key.size()));
    }
    Result<bool> touch(Bytes key, Age max_age = {}) {
        return detail::answer(shale_touch(cache_, key.data(), key.size(), max_age.milliseconds()));
    }
    /* False too where something has happened to the key since. */
    Result<bool> touch(Bytes key, Age max_age, Fence fence) {
        return detail::answer(
            shale_touch_unchanged(cache_, key.data(), key.size(), max_age.milliseconds(), fence.token));
    }
    /* The sum. */
    Result<std::int64_t> increment(Bytes key, std::int64_t delta = 1, std::int64_t initial = 0) {
        std::int64_t sum = 0;
        shale_status status = shale_increment(cache_, key.data(), key.size(), delta, initial, &sum);
        return detail::given(status, sum);
    }

    /* Reads a value and, where it has to be loaded, gives the right to do so to one at a time of all who ask. */
    Result<Loading> lease(Bytes key, const LeaseOptions &options = {}) {
        shale_lease_options with{};
        with.struct_size = sizeof with;
        with.flags = static_cast<std::uint32_t>(options.flags) | (options.recorded ? SHALE_LEASE_RECORDED : 0);
        with.lease_ms = options.time ? options.time->count() : 0;
        with.wait_ms = options.wait ? options.wait->count() : 0;
        with.refresh_ahead_ms = options.refresh_ahead ? options.refresh_ahead->count() : 0;
        Loading loading;
        std::uint64_t token = 0;
        shale_status status = shale_lease(cache_, key.data(), key.size(), &with, loading.value.raw(), &token);
        if (status < 0)
            return Error(status);
        loading.found = detail::found(status);
        if (token)
            loading.lease = Lease(cache_, key, token);
        loading.unrecorded = (loading.value.raw()->flags & SHALE_VALUE_UNRECORDED) != 0;
        return loading;
    }

    /* Removes every entry that carries the tag. */
    Result<void> invalidate(Bytes tag) {
        return detail::done(shale_invalidate(cache_, tag.data(), tag.size()));
    }
    /* Makes every entry stale that carries it. */
    Result<void> expire_tag(Bytes tag) {
        return detail::done(shale_invalidate_with(cache_, tag.data(), tag.size(), SHALE_INVALIDATE_EXPIRE));
    }
    Result<void> clear() {
        return detail::done(shale_clear(cache_));
    }
    /* How many were evicted. */
    Result<std::uint64_t> evict(std::uint64_t count) {
        std::uint64_t evicted = 0;
        shale_status status = shale_evict(cache_, count, &evicted);
        return detail::given(status, evicted);
    }
    /* How many were removed. */
    Result<std::uint64_t> purge() {
        std::uint64_t purged = 0;
        shale_status status = shale_purge(cache_, &purged);
        return detail::given(status, purged);
    }
    Result<shale_report> verify() {
        shale_report report{};
        report.struct_size = sizeof report;
        shale_status status = shale_verify(cache_, &report);
        return detail::given(status, report);
    }
    Result<shale_stats> stats() {
        shale_stats stats{};
        stats.struct_size = sizeof stats;
        shale_status status = shale_get_stats(cache_, &stats);
        return detail::given(status, stats);
    }
    /* Walks all entries, in no promised order. */
    Result<Cursor> entries(Read flags = Read::normal) {
        shale_cursor *cursor = nullptr;
        shale_status status = shale_cursor_open(cache_, &cursor);
        if (status < 0)
            return Error(status);
        return Cursor(cursor, flags);
    }

  private:
    explicit Cache(shale_cache *cache) noexcept : cache_(cache) {
    }
    static Result<Cache> open_raw(const char *directory, const Options &options) {
        shale_options with{};
        with.struct_size = sizeof with;
        with.flags = (options.read_only ? SHALE_OPEN_READ_ONLY : 0) | (options.must_exist ? SHALE_OPEN_MUST_EXIST : 0) |
                     (options.syncs_at_close ? 0 : SHALE_OPEN_NO_SYNC);
        with.capacity = options.capacity;
        with.max_entries = options.max_entries;
        with.max_age_ms = options.max_age.milliseconds();
        with.stale_ms = options.stale_for.milliseconds();
        with.shards = options.shards;
        with.segment_size = options.segment_size;
        with.mode = options.mode;
        with.compression = static_cast<std::int32_t>(options.compression);
        with.now_ms = options.now_ms;
        with.now_context = options.now_context;
        with.eviction = static_cast<std::int32_t>(options.eviction);
        if (options.lock_timeout) /* (0 is no limit in C) */
            with.lock_timeout_ms = options.lock_timeout->count() == 0 ? 1 : options.lock_timeout->count();
        with.on_wait = options.on_wait;
        with.wait_context = options.wait_context;
        with.reserve_capacity = options.reserve_capacity;
        shale_cache *cache = nullptr;
        shale_status status = shale_open(directory, &with, &cache);
        if (status < 0)
            return Error(status);
        return Cache(cache);
    }
    shale_cache *cache_;
};

} // namespace shale

#endif
