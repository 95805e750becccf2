/* Audits a cache from outside, without the library (account.h): account DIRECTORY...
 * Nobody may write to it meanwhile. Exits with 1 where a fault was found. */
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
