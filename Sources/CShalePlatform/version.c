#include "../../Include/shale.h"
#include "platform.h"

/* In C, because Swift imports a macro only if it is a single literal. */
const char *shim_version(void) { return SHALE_VERSION; }
