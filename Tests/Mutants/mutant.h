/* Which copy of a function runs: Tests/Mutants/generate.py puts this beside platform.h, and a switch into each
 * function that a mutant changes. */
#ifndef SHALE_MUTANT_H
#define SHALE_MUTANT_H

extern int shim_mutant_chosen;              /* 0: none */
extern unsigned char *shim_mutant_switches; /* a byte for each switch, if reached switches are to be recorded */

static inline int shim_mutant(int place) {
    if (shim_mutant_switches)
        shim_mutant_switches[place] = 1;
    return shim_mutant_chosen;
}

#endif
