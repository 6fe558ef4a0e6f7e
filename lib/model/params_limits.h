/* Private to lib/model. No model comes near these limits. A file beyond them is broken or hostile.
 */
#ifndef MOED_MODEL_PARAMS_LIMITS_H
#define MOED_MODEL_PARAMS_LIMITS_H

enum {
    MAX_WIDTH = 1 << 18,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 4096,
    MAX_VOCAB = 1 << 22,
    MAX_CONTEXT = 1 << 28,
    MAX_TAPS = 16,
};

#endif
