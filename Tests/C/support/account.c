/* Audits a cache from outside, without the library (account.h): account DIRECTORY... No process may write to the
 * cache meanwhile. Exits with 1 if it finds a fault. */
#include "account.h"

int main(int argument_count, char **arguments) {
    unsigned faults = argument_count < 2;
    if (faults)
        fprintf(stderr, "usage: account DIRECTORY...\n");
    for (int i = 1; i < argument_count; i++) {
        accounts found = take_account(arguments[i], account_read_files);
        print_account(&found, stdout);
        faults += found.faults;
    }
    return faults != 0;
}
