/* A first cache: open, store, read, close. Error::message describes a failure.
 *
 *     c++ -std=c++17 first_cache.cpp $(pkg-config --cflags --libs shale) -o first_cache && ./first_cache DIRECTORY */
#include <shale.hpp>

#include <chrono>
#include <iostream>

static int failed(const char *what, const shale::Error &error) {
    std::cerr << what << ": " << error.message() << '\n';
    return 1;
}

int main(int argument_count, char **arguments) {
    if (argument_count != 2)
        return std::cerr << "usage: first_cache DIRECTORY\n", 2;
    shale::Options options;
    options.capacity = 64 << 20;
    auto cache = shale::Cache::open(arguments[1], options);
    if (!cache)
        return failed("open", cache.error());

    shale::SetOptions for_an_hour;
    for_an_hour.max_age = std::chrono::hours(1);
    if (auto set = cache->set("shale", "a fine-grained rock that splits into layers", for_an_hour); !set)
        return failed("set", set.error());

    /* A miss is not an error. One Value can be used for many reads. */
    shale::Value value;
    for (const char *key : {"shale", "slate"}) {
        auto found = cache->get_into(value, key);
        if (!found)
            return failed("get", found.error());
        std::cout << key << ": " << (*found == shale::Found::miss ? "miss" : value.text()) << '\n';
    }

    /* The destructor closes the cache as well, but cannot report a failure. */
    if (auto closed = cache->close(); !closed)
        return failed("close", closed.error());
}
