// Redis and Valkey over a Unix socket, without saving: one process, started and ended by this program.
#include "driver.h"
#include "server.hpp"

#include <charconv>
#include <cstring>
#include <string>

#include <unistd.h>

namespace {

void *open_with(const char *program, const settings *settings) {
    std::string socket = std::string(settings->directory) + "/socket";
    // clang-format off
    std::vector<std::string> arguments{"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--save", "",
                                       "--appendonly", "no", "--daemonize", "no", "--dir", settings->directory,
                                       "--loglevel", "warning"};
    // clang-format on
    if (settings->capacity)
        arguments.insert(arguments.end(),
                         {"--maxmemory", std::to_string(settings->capacity), "--maxmemory-policy", "allkeys-lru"});
    return new Server(find_program(program), arguments, socket);
}

void append(std::string &text, std::string_view argument) {
    char size[32];
    auto end = std::to_chars(size, size + sizeof size, argument.size()).ptr;
    text += '$';
    text.append(size, size_t(end - size));
    text += "\r\n";
    text += argument;
    text += "\r\n";
}

int64_t number(std::string_view line) {
    int64_t value = -1;
    std::from_chars(line.data() + 1, line.data() + line.size(), value);
    return value;
}

bool take(Connection &connection, buffer *value) {
    int64_t size = number(connection.line());
    if (size < 0)
        return false;
    value->size = size_t(size);
    connection.take(value->data, value->size);
    connection.skip(2);
    return true;
}

void append_set(std::string &text, bytes key, bytes value) {
    text += "*3\r\n$3\r\nSET\r\n";
    append(text, view(key));
    append(text, view(value));
}

// Pipelined: all requests before the first answer, which is short, so that no side waits with a full buffer.
void set_many(void *session, size_t count, const bytes *keys, const bytes *values) {
    auto s = static_cast<Session *>(session);
    s->text.clear();
    for (size_t i = 0; i < count; i++)
        append_set(s->text, keys[i], values[i]);
    s->connection.send({s->text});
    for (size_t i = 0; i < count; i++)
        if (s->connection.line() != "+OK")
            FAIL("redis: a value was not stored");
}

void set(void *session, bytes key, bytes value) {
    set_many(session, 1, &key, &value);
}

bool get(void *session, bytes key, buffer *value) {
    auto s = static_cast<Session *>(session);
    s->text = "*2\r\n$3\r\nGET\r\n";
    append(s->text, view(key));
    s->connection.send({s->text});
    return take(s->connection, value);
}

void get_many(void *session, size_t count, const bytes *keys, buffer *values, bool *found) {
    auto s = static_cast<Session *>(session);
    s->text = "*" + std::to_string(count + 1) + "\r\n$4\r\nMGET\r\n";
    for (size_t i = 0; i < count; i++)
        append(s->text, view(keys[i]));
    s->connection.send({s->text});
    s->connection.line(); // their number
    for (size_t i = 0; i < count; i++)
        found[i] = take(s->connection, &values[i]);
}

bool remove(void *session, bytes key) {
    auto s = static_cast<Session *>(session);
    s->text = "*2\r\n$3\r\nDEL\r\n";
    append(s->text, view(key));
    s->connection.send({s->text});
    return s->connection.line() == ":1";
}

std::string lock_of(bytes key) {
    return "lock:" + std::string(view(key));
}

// The usual lock of a key's load.
bool get_or_lease(void *session, bytes key, buffer *value) {
    auto s = static_cast<Session *>(session);
    for (;; usleep(500)) {
        if (get(session, key, value))
            return true;
        s->text = "*6\r\n$3\r\nSET\r\n";
        append(s->text, lock_of(key));
        for (const char *argument : {"1", "NX", "PX", "30000"})
            append(s->text, argument);
        s->connection.send({s->text});
        if (s->connection.line() == "+OK")
            return false;
    }
}

void fulfil(void *session, bytes key, bytes value) {
    set(session, key, value);
    std::string lock = lock_of(key);
    remove(session, {lock.data(), lock.size()});
}

void describe_with(const char *program, char *text, size_t size) {
    char version[128] = "";
    if (FILE *output = popen((find_program(program) + " --version").c_str(), "r")) {
        if (!fgets(version, sizeof version, output))
            version[0] = 0;
        pclose(output);
    }
    const char *from = strstr(version, "v=");
    snprintf(text, size, "%.*s, Unix socket, nothing saved", from ? int(strcspn(from + 2, " ")) : 0,
             from ? from + 2 : "");
}

driver make(const char *name) {
    driver d = server_driver();
    d.name = name;
    d.set = set;
    d.get = get;
    d.remove = remove;
    d.get_many = get_many;
    d.set_many = set_many;
    d.get_or_lease = get_or_lease;
    d.fulfil = fulfil;
    return d;
}

driver make_redis() {
    driver d = make("redis");
    d.missing = [] { return find_program("redis-server").empty() ? "the package redis-server" : nullptr; };
    d.open = [](const settings *settings) { return open_with("redis-server", settings); };
    d.describe = [](char *text, size_t size) { describe_with("redis-server", text, size); };
    return d;
}

driver make_valkey() {
    driver d = make("valkey");
    d.missing = [] { return find_program("valkey-server").empty() ? "the package valkey-server" : nullptr; };
    d.open = [](const settings *settings) { return open_with("valkey-server", settings); };
    d.describe = [](char *text, size_t size) { describe_with("valkey-server", text, size); };
    return d;
}

} // namespace

extern "C" const driver redis_driver, valkey_driver;
const driver redis_driver = make_redis();
const driver valkey_driver = make_valkey();
