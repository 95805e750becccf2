#include "latency.hpp"
#include "clock.h"

#include <algorithm>

// 64 buckets for each power of two: below 128 ticks one for each number.
unsigned Latency::bucket(uint64_t ticks) {
    if (ticks < 128)
        return unsigned(ticks);
    unsigned shift = unsigned(63 - __builtin_clzll(ticks)) - 6;
    return std::min(shift * 64 + unsigned(ticks >> shift), 64u * 64 - 1);
}

void Latency::add(const Latency &other) {
    for (size_t i = 0; i < buckets.size(); i++)
        buckets[i] += other.buckets[i];
    count += other.count;
    most = std::max(most, other.most);
}

double Latency::percentile(double share) const {
    uint64_t wanted = uint64_t(double(count) * share), seen = 0;
    for (size_t i = 0; i < buckets.size(); i++) {
        seen += buckets[i];
        if (seen > wanted) {
            unsigned shift = i < 128 ? 0 : unsigned(i / 64) - 1;
            return (i < 128 ? double(i) : double((i - shift * 64) << shift) + double(1ull << shift) / 2) * tick_ns();
        }
    }
    return max();
}

double Latency::max() const {
    return double(most) * tick_ns();
}

double tick_ns() {
    static const double ns = [] {
        double start = wall();
        uint64_t first = ticks();
        while (wall() - start < 0.02) {}
        uint64_t last = ticks();
        return (wall() - start) * 1e9 / double(last - first);
    }();
    return ns;
}

double clock_ns() {
    std::vector<uint64_t> costs(10001);
    for (uint64_t &cost : costs) {
        uint64_t start = ticks();
        cost = ticks() - start;
    }
    std::nth_element(costs.begin(), costs.begin() + 5000, costs.end());
    return double(costs[5000]) * tick_ns();
}
