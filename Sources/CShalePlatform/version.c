#include "../../Include/shale.h"
#include "platform.h"

/* In C, as Swift sees a macro only where it is a single literal. */
const char *shim_version(void) { return SHALE_VERSION; }
