#include "platform.h"

/* Defined here rather than in the header, where every module would get its own copy. */
_Thread_local struct shim_error shim_thread_error;

#ifdef SHALE_FAULTS
struct shim_faults shim_faults;
#endif
