#include "peers.hpp"
#include "results.hpp"

// A driver whose library was missing at build time is not linked, and its address is null.
#define DRIVER(symbol) extern "C" __attribute__((weak)) const driver symbol
DRIVER(floor_none);
DRIVER(floor_lz4);
DRIVER(floor_dictionary);
DRIVER(shale_none);
DRIVER(shale_lz4);
DRIVER(shale_dictionary);
DRIVER(shale_dense);
DRIVER(shale_memory);
DRIVER(shale_memory_lz4);
DRIVER(shale_memory_dictionary);
DRIVER(shale_memory_dense);
DRIVER(shale_clock);
DRIVER(shale_memory_clock);
DRIVER(lmdb_driver);
DRIVER(mdbx_driver);
DRIVER(rocksdb_driver);
DRIVER(rocksdb_zstd);
DRIVER(leveldb_driver);
DRIVER(tkrzw_hash);
DRIVER(tkrzw_hash_lz4);
DRIVER(tkrzw_cache);
DRIVER(kyoto_hash);
DRIVER(kyoto_cache);
DRIVER(tdb_driver);
DRIVER(sqlite_driver);
DRIVER(memcached_driver);
DRIVER(redis_driver);
DRIVER(valkey_driver);
DRIVER(lru_map);

std::vector<Peer> all_peers() {
    std::vector<Peer> peers{
        {"floor-none", &floor_none, ""},
        {"shale-none", &shale_none, ""},
        {"floor-lz4", &floor_lz4, ""},
        {"shale-lz4", &shale_lz4, ""},
        {"floor-dictionary", &floor_dictionary, ""},
        {"shale-dictionary", &shale_dictionary, ""},
        {"shale-dense", &shale_dense, ""},
        {"shale-memory", &shale_memory, ""},
        {"shale-memory-lz4", &shale_memory_lz4, ""},
        {"shale-memory-dictionary", &shale_memory_dictionary, ""},
        {"shale-memory-dense", &shale_memory_dense, ""},
        {"shale-clock", &shale_clock, ""},
        {"shale-memory-clock", &shale_memory_clock, ""},
        {"lmdb", &lmdb_driver, "liblmdb-dev"},
        {"mdbx", &mdbx_driver, "libmdbx"},
        {"rocksdb", &rocksdb_driver, "librocksdb-dev"},
        {"rocksdb-zstd", &rocksdb_zstd, "librocksdb-dev"},
        {"leveldb", &leveldb_driver, "libleveldb-dev"},
        {"tkrzw-hash", &tkrzw_hash, "libtkrzw-dev"},
        {"tkrzw-hash-lz4", &tkrzw_hash_lz4, "libtkrzw-dev"},
        {"kyoto-hash", &kyoto_hash, "libkyotocabinet-dev"},
        {"tdb", &tdb_driver, "libtdb-dev"},
        {"sqlite", &sqlite_driver, "libsqlite3-dev"},
        {"tkrzw-cache", &tkrzw_cache, "libtkrzw-dev"},
        {"kyoto-cache", &kyoto_cache, "libkyotocabinet-dev"},
        {"lru-map", &lru_map, ""},
        {"memcached", &memcached_driver, ""},
        {"redis", &redis_driver, ""},
        {"valkey", &valkey_driver, ""},
    };
    for (Peer &peer : peers) {
        if (!peer.functions) {
            peer.missing = "not built, for lack of " + peer.missing;
            continue;
        }
        const char *missing = peer.functions->missing ? peer.functions->missing() : nullptr;
        peer.missing = missing ? std::string("needs ") + missing : "";
    }
    return peers;
}

bool can_run(const Peer &peer, Results &results) {
    if (peer.missing.empty())
        return true;
    fprintf(stderr, "%s is missing: %s\n", peer.name, peer.missing.c_str());
    results.missing.push_back({peer.name, peer.missing});
    return false;
}

bool is_listed(const Peer &peer, const std::string &list) {
    return ("," + list + ",").find("," + std::string(peer.name) + ",") != std::string::npos;
}

void print_names(FILE *out) {
    for (const Peer &peer : all_peers())
        fprintf(out, " %s", peer.name);
    fprintf(out, "\n");
}
