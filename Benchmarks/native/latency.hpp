// A histogram of durations with buckets of about 1.5 %, and the cost of the clock itself.
#pragma once

#include <cstdint>
#include <vector>

class Latency {
public:
    Latency() : buckets(64 * 64) {}
    void add(uint64_t ticks) {
        buckets[bucket(ticks)]++;
        count++;
        if (ticks > most)
            most = ticks;
    }
    void add(const Latency &other);
    uint64_t size() const { return count; }
    double percentile(double share) const; // nanoseconds
    double max() const;

private:
    static unsigned bucket(uint64_t ticks);
    std::vector<uint64_t> buckets;
    uint64_t count = 0, most = 0;
};

double tick_ns();  // of one tick
double clock_ns(); // between two readings with nothing between them, as a median
