/* The versions of a build whose host pool has another layout than this one's: lib/memory/layouts.c
 * with one number changed. */
#include "model/pool_map.h"

enum { OTHER_VERSION = POOL_LAYOUT_VERSION + 1 };
#undef POOL_LAYOUT_VERSION
#define POOL_LAYOUT_VERSION OTHER_VERSION

#include "../../lib/memory/layouts.c"
