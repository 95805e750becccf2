// The available stores, in the order of the tables.
#pragma once

#include "driver.h"

#include <string>
#include <vector>

struct Peer {
    const char *name;
    const driver *functions; // NULL: not built
    std::string missing;     // why it cannot run; empty: it can
};

std::vector<Peer> all_peers();
