/* cusim: the types stand in cuda_runtime_api.h. */
#include "cuda_runtime_api.h"
