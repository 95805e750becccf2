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

// Whether a store can run; if not, says why.
bool can_run(const Peer &peer, class Results &results);

// For programs whose --peers is a list of full names.
bool is_listed(const Peer &peer, const std::string &list);
void print_names(FILE *out);
