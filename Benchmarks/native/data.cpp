#include "data.hpp"
#include "keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <glob.h>

uint32_t Expected::check_of(const void *data, size_t size) {
    if (size < 16)
        return 0;
    auto at = static_cast<const char *>(data);
    uint32_t a, b, c;
    std::memcpy(&a, at + 8, 4);
    std::memcpy(&b, at + size / 2, 4);
    std::memcpy(&c, at + size - 8, 4);
    return a + b * 3 + c * 5;
}

void Data::add(const char *value, size_t size) {
    if (starts.empty())
        starts.push_back(0);
    text.insert(text.end(), value, value + size);
    starts.push_back(text.size());
    expected.push_back({static_cast<uint32_t>(size), Expected::check_of(value, size)});
}

namespace {

const char *const names[] = {"anna", "bela",  "carlos", "dmitri", "eva",   "farid", "grace", "hiro",
                             "ines", "jonas", "kofi",   "lena",   "marta", "nadia", "oskar", "priya"};
const char *const cities[] = {"Lisbon",  "Nairobi", "Osaka",  "Porto",  "Quito",   "Riga",   "Seoul",  "Tallinn",
                              "Utrecht", "Vilnius", "Warsaw", "Xalapa", "Yerevan", "Zagreb", "Bergen", "Cork"};
const char *const syllables[] = {"ba",  "co",  "den", "fi",  "gur", "ha",  "in",  "ko", "lar", "me", "no",
                                 "per", "qui", "ro",  "sti", "tan", "u",   "ver", "wo", "xe",  "ya", "zim",
                                 "el",  "or",  "an",  "sch", "tri", "plo", "mun", "ge", "da",  "is"};

template <size_t n> const char *pick(const char *const (&list)[n], uint64_t r) {
    return list[r % n];
}

// About 100 bytes.
size_t short_record(char *out, size_t room, uint64_t number) {
    uint64_t r = mix(number ^ 0x5eed), s = mix(r);
    return static_cast<size_t>(snprintf(
        out, room,
        "{\"id\":%u,\"user\":\"%s.%s\",\"city\":\"%s\",\"score\":%u,\"seen\":\"2026-%02u-%02uT%02u:%02u:%02uZ\",\"ok\":%s}",
        unsigned(number * 7 + 100000), pick(names, r), pick(names, r >> 4), pick(cities, r >> 8),
        unsigned(r >> 16) % 100000, unsigned(s % 12) + 1, unsigned(s >> 8) % 28 + 1, unsigned(s >> 16) % 24,
        unsigned(s >> 24) % 60, unsigned(s >> 32) % 60, s >> 40 & 1 ? "true" : "false"));
}

// One word of 4,096, of one to four syllables.
std::string word(uint64_t r) {
    uint64_t s = mix(r % 4096);
    std::string made;
    for (int i = 0, count = 1 + int(s % 4); i < count; i++)
        made += pick(syllables, s >> (8 + 6 * i));
    return made;
}

// About 1 KiB: an order with its lines, as a shop's interface returns it.
size_t long_record(char *out, size_t room, uint64_t number) {
    uint64_t r = mix(number ^ 0xa271c1e), s = mix(r), t = mix(s);
    const char *first = pick(names, r), *second = pick(names, r >> 4);
    size_t at = size_t(snprintf(
        out, room,
        "{\"id\":%u,\"type\":\"order\",\"customer\":{\"id\":%u,\"name\":\"%s %s\",\"email\":\"%s.%s%u@example.org\",\"city\":\"%s\"},"
        "\"url\":\"https://example.org/orders/%u\",\"created\":\"2026-%02u-%02uT%02u:%02u:%02uZ\",\"paid\":%s,\"etag\":\"%016llx\",\"lines\":[",
        unsigned(number), unsigned(r >> 40) % 50000, first, second, first, second, unsigned(s % 1000),
        pick(cities, s >> 10), unsigned(number), unsigned(t % 12) + 1, unsigned(t >> 8) % 28 + 1,
        unsigned(t >> 16) % 24, unsigned(t >> 24) % 60, unsigned(t >> 32) % 60, t >> 56 & 1 ? "true" : "false",
        static_cast<unsigned long long>(mix(t))));
    for (uint64_t i = 0, end = 880 + t % 240; at < end; i++) {
        uint64_t u = mix(t + i);
        at += size_t(snprintf(out + at, room - at,
                              "%s{\"sku\":\"%c%c-%06u\",\"name\":\"%s %s\",\"quantity\":%u,\"price\":%u.%02u}",
                              i ? "," : "", char('A' + u % 26), char('A' + (u >> 8) % 26), unsigned(u >> 16) % 1000000,
                              word(u >> 36).c_str(), word(u >> 48).c_str(), unsigned(u >> 60) + 1,
                              unsigned(mix(u) % 200), unsigned(mix(u) >> 32) % 100));
    }
    std::memcpy(out + at, "]}", 2);
    return at + 2;
}

void add_records(Data &data, uint64_t count, size_t (*make)(char *, size_t, uint64_t)) {
    char text[2048];
    for (uint64_t i = 0; i < count; i++) {
        size_t size = make(text, sizeof text, i);
        if (i == 0)
            data.text.reserve(size * count * 11 / 10);
        data.add(text, size);
    }
    data.source = "made";
}

std::string contents(const std::string &path) {
    std::string text;
    bool packed = path.size() > 4 && path.compare(path.size() - 4, 4, ".lz4") == 0;
    FILE *file = packed ? popen(("lz4 -dcq '" + path + "'").c_str(), "r") : fopen(path.c_str(), "r");
    if (!file)
        return text;
    char block[65536];
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
        text.append(block, got);
    packed ? pclose(file) : fclose(file);
    return text;
}

// The paragraphs of this system's package lists, then copies of them with a line that numbers the copy.
void add_packages(Data &data, uint64_t count) {
    std::vector<std::string> files{"/var/lib/dpkg/status"}, paragraphs;
    for (const char *pattern : {"/var/lib/apt/lists/*_Packages", "/var/lib/apt/lists/*_Packages.lz4"}) {
        glob_t found;
        if (glob(pattern, 0, nullptr, &found) == 0) {
            files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
            globfree(&found);
        }
    }
    for (const std::string &file : files) {
        std::string text = contents(file);
        for (size_t at = 0; at < text.size();) {
            size_t end = std::min(text.find("\n\n", at), text.size() - 1);
            if (end > at)
                paragraphs.push_back(text.substr(at, end + 1 - at));
            at = end + 2;
        }
    }
    if (paragraphs.empty())
        return;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t copy = i / paragraphs.size();
        std::string text = paragraphs[i % paragraphs.size()];
        if (copy > 0)
            text += "Copy: " + std::to_string(copy) + "\n";
        data.add(text.data(), text.size());
    }
    data.source = std::to_string(paragraphs.size()) + " paragraphs of this machine's package lists, repeated";
}

// Whole chunks of the files under /usr, at most 4 MiB of each file.
void add_chunks(Data &data, uint64_t count, size_t size) {
    namespace fs = std::filesystem;
    std::vector<std::string> files;
    std::error_code error;
    for (fs::recursive_directory_iterator at("/usr", fs::directory_options::skip_permission_denied, error), end;
         at != end && !error; at.increment(error))
        if (at->is_regular_file(error) && !at->is_symlink(error) && at->file_size(error) >= size)
            files.push_back(at->path());
    std::sort(files.begin(), files.end(), [](const std::string &a, const std::string &b) { // spread over the tree
        uint64_t x = mix(std::hash<std::string>{}(a)), y = mix(std::hash<std::string>{}(b));
        return x != y ? x < y : a < b;
    });
    data.text.reserve(size * count);
    std::vector<char> chunk(size);
    for (const std::string &path : files) {
        std::ifstream file(path, std::ios::binary);
        for (size_t taken = 0;
             taken < (4u << 20) && data.count() < count && file.read(chunk.data(), std::streamsize(size));
             taken += size)
            data.add(chunk.data(), size);
        if (data.count() == count)
            break;
    }
    data.source = "files under /usr";
}

// Zipf with exponent 0.99 by inversion over the exact sums; the ranks are spread over the numbers.
void add_zipf(Data &data) {
    uint64_t count = data.count(), step = uint64_t(double(count) * 0.6180339887) | 1;
    while (std::__gcd(step, count) != 1)
        step += 2;
    std::vector<double> sums(count);
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sums[i] = sum += std::pow(double(i + 1), -0.99);
    data.zipf.resize(std::clamp<uint64_t>(count * 2, 1 << 18, 1 << 22));
    for (size_t i = 0; i < data.zipf.size(); i++) {
        double share = double(mix(i ^ 0x21bf) >> 11) * 0x1p-53 * sum;
        uint64_t rank = uint64_t(std::lower_bound(sums.begin(), sums.end(), share) - sums.begin());
        data.zipf[i] = uint32_t(std::min(rank, count - 1) * step % count);
    }
}

} // namespace

Data make_data(const std::string &kind, const std::string &name, uint64_t count, size_t key_size) {
    Data data;
    data.name = name;
    data.key_size = key_size;
    if (kind == "json100")
        add_records(data, count, short_record);
    else if (kind == "json1k")
        add_records(data, count, long_record);
    else if (kind == "packages")
        add_packages(data, count);
    else
        add_chunks(data, count, kind == "files16k" ? 16 << 10 : 256 << 10);
    if (data.count() > 0)
        add_zipf(data);
    return data;
}
