// Starting and ending servers, and talking to them over a Unix socket.
#pragma once

#include "driver.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

// Whether a program is in the path, or where Debian puts servers.
std::string find_program(const char *name);

class Server {
public:
    // Starts it, and waits until the socket takes connections. It ends with this process, or by end().
    Server(const std::string &program, const std::vector<std::string> &arguments, std::string socket);
    ~Server();
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    const std::string socket;
    pid_t process() const { return child; }

private:
    pid_t child;
    pid_t owner; // children of fork must not end it
};

// One connection: blocking, with a receive buffer.
class Connection {
public:
    explicit Connection(const std::string &socket);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    void send(std::initializer_list<std::string_view> parts);
    // Up to the line's end, which is left out; valid until the next call.
    std::string_view line();
    // Exactly `size` bytes.
    void take(void *out, size_t size);
    void skip(size_t size);

private:
    void fill();
    int descriptor;
    std::vector<char> incoming;
    size_t begin = 0, end = 0;
};

// The state of a thread that works with a server: its connection, and room to assemble a request.
struct Session {
    Connection connection;
    std::string text;
};

inline std::string_view view(bytes b) {
    return {static_cast<const char *>(b.data), b.size};
}

// A driver whose store is a Server and whose sessions are Sessions; the protocol is the file's own.
driver server_driver();
