#include "server.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

std::string find_program(const char *name) {
    std::string path = getenv("PATH") ? getenv("PATH") : "";
    path += ":/usr/bin:/usr/sbin:/usr/local/bin";
    for (size_t at = 0; at <= path.size();) {
        size_t end = std::min(path.find(':', at), path.size());
        std::string file = path.substr(at, end - at) + "/" + name;
        if (access(file.c_str(), X_OK) == 0)
            return file;
        at = end + 1;
    }
    return "";
}

namespace {

int try_to_connect(const std::string &socket_path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_path.size() >= sizeof address.sun_path)
        FAIL("%s: too long for a socket; choose a shorter --directory", socket_path.c_str());
    std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0 && connect(descriptor, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0)
        return descriptor;
    close(descriptor);
    return -1;
}

} // namespace

Server::Server(const std::string &program, const std::vector<std::string> &arguments, std::string socket_path)
    : socket(std::move(socket_path)), owner(getpid()) {
    std::vector<char *> list{const_cast<char *>(program.c_str())};
    for (const std::string &argument : arguments)
        list.push_back(const_cast<char *>(argument.c_str()));
    list.push_back(nullptr);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, 0);
        dup2(nothing, 1);
        execv(program.c_str(), list.data());
        _exit(127);
    }
    for (int i = 0; i < 500; i++) {
        int descriptor = try_to_connect(socket);
        if (descriptor >= 0) {
            close(descriptor);
            return;
        }
        if (waitpid(child, nullptr, WNOHANG) == child)
            FAIL("%s ended at once", program.c_str());
        usleep(10000);
    }
    FAIL("%s does not answer", program.c_str());
}

Server::~Server() {
    if (getpid() != owner)
        return;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

Connection::Connection(const std::string &socket_path) : descriptor(try_to_connect(socket_path)), incoming(256 << 10) {
    if (descriptor < 0)
        FAIL("%s: %s", socket_path.c_str(), strerror(errno));
}

Connection::~Connection() {
    close(descriptor);
}

void Connection::send(std::initializer_list<std::string_view> parts) {
    iovec vector[8];
    size_t count = 0;
    for (std::string_view part : parts)
        vector[count++] = {const_cast<char *>(part.data()), part.size()};
    for (size_t at = 0; at < count;) {
        ssize_t sent = writev(descriptor, vector + at, int(count - at));
        if (sent < 0 && errno != EINTR)
            FAIL("a server has ended: %s", strerror(errno));
        for (size_t left = sent < 0 ? 0 : size_t(sent); at < count; at++) {
            if (left < vector[at].iov_len) {
                vector[at].iov_base = static_cast<char *>(vector[at].iov_base) + left;
                vector[at].iov_len -= left;
                break;
            }
            left -= vector[at].iov_len;
        }
    }
}

void Connection::fill() {
    if (begin == end)
        begin = end = 0;
    else if (end == incoming.size()) {
        std::memmove(incoming.data(), incoming.data() + begin, end - begin);
        end -= begin;
        begin = 0;
    }
    ssize_t got = read(descriptor, incoming.data() + end, incoming.size() - end);
    if (got == 0 || (got < 0 && errno != EINTR))
        FAIL("a server has ended");
    end += got > 0 ? size_t(got) : 0;
}

std::string_view Connection::line() {
    for (size_t looked = begin;;) {
        auto found = static_cast<char *>(memchr(incoming.data() + looked, '\n', end - looked));
        if (found) {
            std::string_view text(incoming.data() + begin, size_t(found - incoming.data()) - begin);
            begin += text.size() + 1;
            if (!text.empty() && text.back() == '\r')
                text.remove_suffix(1);
            return text;
        }
        size_t seen = end - begin;
        fill();
        looked = begin + seen;
    }
}

void Connection::take(void *out, size_t size) {
    auto to = static_cast<char *>(out);
    size_t here = std::min(size, end - begin);
    std::memcpy(to, incoming.data() + begin, here);
    begin += here;
    while (here < size) { // the rest of a large value goes directly to its destination
        ssize_t got = read(descriptor, to + here, size - here);
        if (got == 0 || (got < 0 && errno != EINTR))
            FAIL("a server has ended");
        here += got > 0 ? size_t(got) : 0;
    }
}

void Connection::skip(size_t size) {
    while (end - begin < size)
        fill();
    begin += size;
}

driver server_driver() {
    driver d{};
    d.traits = in_memory | threads_read | threads_write | processes_fork | evicts;
    d.close = [](void *store) { delete static_cast<Server *>(store); };
    d.attach = [](void *store) -> void * { return new Session{Connection(static_cast<Server *>(store)->socket), {}}; };
    d.detach = [](void *session) { delete static_cast<Session *>(session); };
    d.weigh = [](void *store, footprint *footprint) { footprint->server = static_cast<Server *>(store)->process(); };
    return d;
}
