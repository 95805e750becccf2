// memcached over a Unix socket, with the text protocol: one process with two
// worker threads, started and ended by this program.
#include "driver.h"
#include "server.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <unistd.h>

namespace {

const char *missing() {
    return find_program("memcached").empty() ? "the package memcached" : nullptr;
}

void *open(const settings *settings) {
    uint64_t memory = settings->capacity ? settings->capacity
                                         : settings->raw_bytes * 3 / 2 + settings->entries * 128 + (64 << 20);
    std::string socket = std::string(settings->directory) + "/socket";
    std::vector<std::string> arguments{"-s", socket, "-a", "700", "-m", std::to_string(memory >> 20), "-t", "2"};
    if (geteuid() == 0)
        arguments.insert(arguments.end(), {"-u", "root"});
    return new Server(find_program("memcached"), arguments, socket);
}

void expect_stored(Session *s) {
    if (s->connection.line() != "STORED")
        FAIL("memcached: a value was not stored");
}

void set(void *session, bytes key, bytes value) {
    auto s = static_cast<Session *>(session);
    char size[32];
    auto end = std::to_chars(size, size + sizeof size, value.size).ptr;
    s->connection.send({"set ", view(key), " 0 0 ", {size, size_t(end - size)}, "\r\n", view(value), "\r\n"});
    expect_stored(s);
}

// Pipelined: all requests before the first answer, which is short, so that no side waits with a full buffer.
void set_many(void *session, size_t count, const bytes *keys, const bytes *values) {
    auto s = static_cast<Session *>(session);
    s->text.clear();
    for (size_t i = 0; i < count; i++) {
        ((s->text += "set ") += view(keys[i])) += " 0 0 ";
        ((s->text += std::to_string(values[i].size)) += "\r\n") += view(values[i]);
        s->text += "\r\n";
    }
    s->connection.send({s->text});
    for (size_t i = 0; i < count; i++)
        expect_stored(s);
}

// Reads "VALUE key flags size", then the value. False at "END".
bool take(Connection &connection, buffer *value) {
    std::string_view line = connection.line();
    if (line == "END")
        return false;
    size_t at = line.rfind(' ') + 1;
    std::from_chars(line.data() + at, line.data() + line.size(), value->size);
    connection.take(value->data, value->size);
    connection.skip(2);
    return true;
}

bool get(void *session, bytes key, buffer *value) {
    auto s = static_cast<Session *>(session);
    s->connection.send({"get ", view(key), "\r\n"});
    if (!take(s->connection, value))
        return false;
    s->connection.line(); // END
    return true;
}

void get_many(void *session, size_t count, const bytes *keys, buffer *values, bool *found) {
    auto s = static_cast<Session *>(session);
    s->text = "get";
    for (size_t i = 0; i < count; i++)
        (s->text += ' ') += view(keys[i]);
    s->connection.send({s->text, "\r\n"});
    std::fill(found, found + count, false);
    for (size_t i = 0;;) { // answers come in the order of the keys, without the missing ones
        std::string_view line = s->connection.line();
        if (line == "END")
            return;
        std::string_view key = line.substr(6, line.find(' ', 6) - 6);
        while (i < count && key != view(keys[i]))
            i++;
        if (i == count)
            FAIL("memcached: an answer that was not asked for");
        size_t at = line.rfind(' ') + 1;
        std::from_chars(line.data() + at, line.data() + line.size(), values[i].size);
        s->connection.take(values[i].data, values[i].size);
        s->connection.skip(2);
        found[i++] = true;
    }
}

bool remove(void *session, bytes key) {
    auto s = static_cast<Session *>(session);
    s->connection.send({"delete ", view(key), "\r\n"});
    return s->connection.line() == "DELETED";
}

void describe(char *text, size_t size) {
    char version[64] = "memcached";
    if (FILE *program = popen((find_program("memcached") + " --version").c_str(), "r")) {
        if (fgets(version, sizeof version, program))
            version[strcspn(version, "\n")] = 0;
        pclose(program);
    }
    snprintf(text, size, "%s, Unix socket, text protocol, 2 threads",
             strchr(version, ' ') ? strchr(version, ' ') + 1 : version);
}

driver make() {
    driver d = server_driver();
    d.name = "memcached";
    d.least_capacity = 8 << 20;
    d.describe = describe;
    d.missing = missing;
    d.open = open;
    d.set = set;
    d.get = get;
    d.remove = remove;
    d.get_many = get_many;
    d.set_many = set_many;
    return d;
}

} // namespace

extern "C" const driver memcached_driver;
const driver memcached_driver = make();
