/* cusim: cuda_runtime_api.h declares the types. */
#include "cuda_runtime_api.h"
