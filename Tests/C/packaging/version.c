/* Prints the version, which has to be the same in header and library. */
#include <shale.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    if (strcmp(shale_version(), SHALE_VERSION) != 0)
        return fprintf(stderr, "the header is of %s, the library of %s\n", SHALE_VERSION, shale_version()), 1;
    puts(SHALE_VERSION);
    return 0;
}
