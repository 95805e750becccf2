/* shale.hpp as its users meet it: every call, moved handles, errors. */
#include <shale.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>

#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0                                                                                             \
                 : (std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), std::exit(1), (void)0))

using namespace std::chrono_literals;

static std::int64_t clock_ms = 1'700'000'000'000;
static std::int64_t now(void *) {
    return clock_ms;
}

static shale::Cache make() {
    shale::Options options;
    options.capacity = 8 << 20;
    options.now_ms = now;
    auto cache = shale::Cache::in_memory(options);
    CHECK(cache);
    return *std::move(cache);
}

/* Whether there is a fresh value, and it is this one. */
static bool has(shale::Cache &cache, shale::Bytes key, std::string_view value) {
    auto found = cache.get(key);
    return found && *found && (*found)->text() == value;
}

static void values_and_conditions() {
    shale::Cache cache = make();
    auto version = cache.set("key", "value");
    CHECK(version && *version && **version != 0);
    CHECK(has(cache, "key", "value"));
    CHECK(cache.get("other") && !*cache.get("other"));

    const std::array<unsigned char, 3> key = {0, 255, 10};
    const std::vector<std::byte> bytes(300, std::byte{7});
    CHECK(cache.set(key, bytes));
    auto found = cache.get(std::string("\0\377\n", 3));
    CHECK(found && *found && (*found)->size() == 300 && (*found)->version() != 0);
#if __cplusplus >= 202002L
    CHECK((*found)->bytes().size() == 300 && (*found)->bytes()[299] == std::byte{7});
    CHECK(cache.get(std::span<const unsigned char>(key)) && *cache.get(std::span<const unsigned char>(key)));
#endif
    CHECK(cache.set("empty", shale::Bytes()) && has(cache, "empty", ""));

    shale::SetOptions absent, present, same;
    absent.if_absent = true;
    present.if_present = true;
    same.if_version = **version;
    CHECK(cache.set("key", "new", absent) && !*cache.set("key", "new", absent));
    CHECK(cache.set("other", "new", present) && !*cache.set("other", "new", present));
    CHECK(*cache.set("key", "new", same) && !*cache.set("key", "newer", same));
    CHECK(has(cache, "key", "new"));
    CHECK(!*cache.remove("key", **version) && !*cache.remove("key", 0));
    CHECK(*cache.remove("key") && !*cache.remove("key"));

    CHECK(*cache.increment("count") == 1 && *cache.increment("count", 5) == 6 && *cache.increment("down", -1, 10) == 9);
    auto wrong = cache.increment("other\n");
    CHECK(wrong && *wrong == 1);
    CHECK(cache.set("text", "no number") && cache.increment("text").error().code() == shale::Errc::invalid);
}

static void ages_tags_and_what_is_known() {
    static_assert(shale::Age(5min).milliseconds() == 300'000 && shale::Age(0s).milliseconds() == SHALE_NONE);
    static_assert(shale::Age(1ns).milliseconds() == 1 && shale::Age(1500us).milliseconds() == 2);
    static_assert(shale::Age().milliseconds() == 0 && shale::Age::never().milliseconds() == SHALE_NEVER);
    static_assert(shale::Age(std::chrono::hours::max()).milliseconds() == SHALE_NEVER);
    shale::Cache cache = make();
    shale::SetOptions options;
    options.max_age = 1h;
    options.stale_for = 2h;
    options.tags = {"news", "sport"};
    options.meta = "etag";
    options.pinned = true;
    CHECK(cache.set("key", "value", options));
    auto found = cache.get("key");
    CHECK((*found)->meta() == "etag" && (*found)->is_pinned() && !(*found)->is_stale());
    CHECK((*found)->created().time_since_epoch() == std::chrono::milliseconds(clock_ms));
    CHECK(*(*found)->expires() - (*found)->created() == 1h);
    CHECK((*cache.get("key", shale::Read::info))->size() == 5);

    shale::Value value;
    CHECK(*cache.get_into(value, "key") == shale::Found::fresh);
    CHECK(cache.expire_tag("sport"));
    CHECK(*cache.get_into(value, "key") == shale::Found::miss && value.raw()->flags & SHALE_VALUE_EXPIRED);
    CHECK(*cache.get_into(value, "key", shale::Read::stale | shale::Read::peek) == shale::Found::stale);
    CHECK(value.is_stale() && value.text() == "value");
    CHECK(*cache.touch("key", 1h) && *cache.get_into(value, "key") == shale::Found::fresh);
    CHECK(*cache.expire("key") && !*cache.expire("none") && !*cache.touch("none"));
    CHECK(*cache.get_into(value, "key") == shale::Found::miss);
    CHECK(cache.invalidate("news"));
    CHECK(*cache.get_into(value, "key", shale::Read::stale) == shale::Found::miss);

    options.max_age = -1ms; // not SHALE_NONE
    CHECK(cache.set("key", "value", options).error().code() == shale::Errc::invalid);
    options.max_age = shale::Age::none();
    options.stale_for = 0s;
    CHECK(cache.set("dead", "value", options) && !*cache.get("dead", shale::Read::stale));
}

static void leases() {
    shale::Cache cache = make();
    {
        auto loading = cache.lease("key");
        CHECK(loading && loading->found == shale::Found::miss && loading->lease);
        CHECK(!cache.lease("key")->lease); // one at a time
        shale::LeaseOptions recorded;
        recorded.recorded = true;
        CHECK(!cache.lease("key", recorded)->lease && !cache.lease("key", recorded)->unrecorded);
        CHECK(*loading->lease->renew() && *loading->lease->renew(1s));
        shale::SetOptions fenced;
        fenced.if_unchanged = loading->lease->fence();
        CHECK(cache.set("key", "of another"));
        CHECK(!*cache.set("key", "loaded", fenced));
        CHECK(!*cache.touch("key", 1h, loading->lease->fence()));
        CHECK(cache.remove("key"));
    }
    auto loading = cache.lease("key"); // released at the end of its scope
    CHECK(loading->lease);
    shale::Lease lease = *std::move(loading->lease);
    loading->lease.reset(); // it was moved from, and releases nothing
    CHECK(!cache.lease("key")->lease);
    shale::SetOptions fenced;
    fenced.if_unchanged = lease.fence();
    CHECK(*cache.set("key", "loaded", fenced) && has(cache, "key", "loaded"));
    CHECK(cache.lease("key")->found == shale::Found::fresh);

    shale::Value value;
    CHECK(*cache.get_into(value, "token", shale::Read::token) == shale::Found::miss);
    fenced.if_unchanged = value.fence();
    CHECK(*cache.set("token", "loaded", fenced));
}

static void many_and_walks() {
    shale::Cache cache = make();
    CHECK(*cache.set_many({{"a", "1"}, {"b", "2"}, {"c", "3"}}));
    shale::SetOptions absent;
    absent.if_absent = true;
    CHECK(!*cache.set_many({{"c", "4"}, {"d", "4"}}, absent) && has(cache, "d", "4") && has(cache, "c", "3"));
    auto values = cache.get_many({"a", "none", "c"});
    CHECK(values && values->size() == 3 && !(*values)[1]);
    CHECK((*values)[0]->text() == "1" && (*values)[2]->text() == "3");
    CHECK(cache.get_many({}) && cache.get_many({})->empty());
    CHECK(cache.get_many({"a", ""}).error().code() == shale::Errc::invalid);

    std::map<std::string, std::string> seen;
    auto opened = cache.entries();
    CHECK(opened);
    shale::Cursor walk = *std::move(opened);
    while (*walk.next())
        seen.emplace(walk.key(), walk.value().text());
    CHECK((seen == std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}}));

    CHECK(*cache.evict(1) == 1 && !*cache.get("b")); // the only one that was not read
    CHECK(cache.verify()->records == 3 && cache.stats()->entries == 3 && cache.stats()->evictions == 1);
    shale::SetOptions brief;
    brief.max_age = 1ms;
    CHECK(cache.set("brief", "value", brief));
    clock_ms += 10;
    CHECK(*cache.purge() == 1);
    CHECK(cache.clear() && cache.stats()->entries == 0 && cache.sync());
}

static void moved_handles() {
    shale::Cache first = make();
    CHECK(first.set("key", "value"));
    shale::Cache second = std::move(first);
    CHECK(has(second, "key", "value"));
    CHECK(first.get("key").error().code() == shale::Errc::invalid && !first.set("key", "value"));
    CHECK(first.entries().error().code() == shale::Errc::invalid && first.close());
    first = std::move(second);
    CHECK(has(first, "key", "value") && first.close() && first.sync().error().code() == shale::Errc::invalid);

    shale::Cache cache = make();
    CHECK(cache.set("key", "value"));
    auto found = cache.get("key");
    shale::Value value = *std::move(*found), other;
    CHECK(value.text() == "value" && (*found)->size() == 0);
    other = std::move(value);
    CHECK(other.text() == "value" && value.size() == 0);
    static_assert(!std::is_copy_constructible_v<shale::Cache> && !std::is_copy_assignable_v<shale::Cache>);
    static_assert(!std::is_copy_constructible_v<shale::Value> && !std::is_copy_constructible_v<shale::Cursor>);
    static_assert(!std::is_copy_constructible_v<shale::Lease> && std::is_nothrow_move_constructible_v<shale::Cache>);
    static_assert(!std::is_convertible_v<std::vector<int>, shale::Bytes>);
}

static void in_a_directory(const std::string &directory) {
    shale::Options options;
    options.must_exist = true;
    auto none = shale::Cache::open(directory, options);
    CHECK(!none && none.error().code() == shale::Errc::io && none.error().system_errno() == ENOENT);
    CHECK(none.error().message().find(directory) != std::string::npos);
    CHECK(!shale::Cache::open(static_cast<const char *>(nullptr)));
    {
        shale::Options clock;
        clock.capacity = 8 << 20;
        clock.eviction = shale::Eviction::clock;
        clock.compression = shale::Compression::none;
        auto cache = shale::Cache::open(directory, clock);
        CHECK(cache && cache->set("key", "value") && cache->stats()->eviction == SHALE_EVICTION_CLOCK);
    }
    {
        shale::Options larger; // needs a sole handle: the ones that went out of scope are closed
        larger.capacity = 16 << 20;
        auto cache = shale::Cache::open(directory, larger);
        CHECK(cache);
        shale::Cache other = make();
        *cache = std::move(other); // closes too
        larger.capacity = 32 << 20;
        CHECK(shale::Cache::open(directory, larger));
    }
    options.read_only = true;
    auto cache = shale::Cache::open(directory, options);
    CHECK(cache && has(*cache, "key", "value"));
    CHECK(cache->set("key", "new").error().code() == shale::Errc::permission);
}

int main(int, char **arguments) {
    values_and_conditions();
    ages_tags_and_what_is_known();
    leases();
    many_and_walks();
    moved_handles();
    in_a_directory(arguments[1]);
}
