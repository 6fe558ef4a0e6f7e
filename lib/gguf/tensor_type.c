/* The table of tensor types; see tensor_type.h. */
#include "gguf/tensor_type.h"

#include <stddef.h>
#include <stdio.h>
#include <strings.h>

const struct tensor_type_info *tensor_type_info(uint32_t id)
{
    /* Indexed by id; an id that ggml retired or never gave out has no name. */
    static const struct tensor_type_info table[] = {
#define X(type, number, values, bytes, does) [number] = {#type, values, bytes, does},
        TENSOR_TYPE_LIST(X)
#undef X
    };
    if (id >= sizeof table / sizeof table[0] || !table[id].name)
        return NULL;
    return &table[id];
}

#define IK_REPACKED                                                                                \
    200 /* ik_llama.cpp: the id of the type whose rows are interleaved, and this                   \
         */

static const struct {
    uint32_t id;
    const char *name, *take;
} foreign[] = {
    {4, "Q4_2, withdrawn", "Q4_0"},
    {5, "Q4_3, withdrawn", "Q4_1"},
    {31, "Q4_0_4_4, withdrawn", "Q4_0"},
    {32, "Q4_0_4_8, withdrawn", "Q4_0"},
    {33, "Q4_0_8_8, withdrawn", "Q4_0"},
    {36, "IQ4_NL_4_4, withdrawn", "IQ4_NL"},
    {37, "IQ4_NL_4_8, withdrawn", "IQ4_NL"},
    {38, "IQ4_NL_8_8, withdrawn", "IQ4_NL"},
    {41, "Q1_0", "IQ1_M or IQ2_XXS"},
    {133, "Q6_0 of ik_llama.cpp", "Q6_K"},
    {134, "IQ1_BN of ik_llama.cpp", "IQ1_M"},
    {135, "IQ2_BN of ik_llama.cpp", "IQ2_S"},
    {137, "IQ2_K of ik_llama.cpp", "IQ2_S or Q2_K"},
    {138, "IQ3_K of ik_llama.cpp", "IQ3_S or Q3_K"},
    {139, "IQ4_K of ik_llama.cpp", "IQ4_XS or Q4_K"},
    {140, "IQ5_K of ik_llama.cpp", "Q5_K"},
    {141, "IQ6_K of ik_llama.cpp", "Q6_K"},
    {144, "IQ4_KS of ik_llama.cpp", "IQ4_XS or Q4_K"},
    {145, "IQ2_KS of ik_llama.cpp", "IQ2_XS or IQ2_S"},
    {146, "IQ4_KSS of ik_llama.cpp", "IQ4_XS"},
    {151, "Q8_KV of ik_llama.cpp", "Q8_0"},
    {152, "IQ5_KS of ik_llama.cpp", "Q5_K"},
    {153, "IQ2_KT of ik_llama.cpp", "IQ2_XS or IQ2_S"},
    {154, "IQ3_KT of ik_llama.cpp", "IQ3_XXS or IQ3_S"},
    {155, "IQ4_KT of ik_llama.cpp", "IQ4_XS"},
    {156, "IQ3_KS of ik_llama.cpp", "IQ3_XXS or IQ3_S"},
    {157, "IQ2_KL of ik_llama.cpp", "Q2_K"},
    {158, "IQ1_KT of ik_llama.cpp", "IQ1_M"},
    {398, "Q8_KV_R8 of ik_llama.cpp", "Q8_0"},
    {399, "Q8_K_R8 of ik_llama.cpp", "Q8_0"},
};

static bool find_foreign(uint32_t id, struct tensor_type_foreign *out)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (foreign[i].id != id)
            continue;
        snprintf(out->name, sizeof out->name, "%s", foreign[i].name);
        out->take = foreign[i].take;
        return true;
    }
    return false;
}

bool tensor_type_foreign(uint32_t id, struct tensor_type_foreign *out)
{
    struct tensor_type_foreign base;
    if (find_foreign(id, out))
        return true;
    if (id < IK_REPACKED)
        return false;
    const struct tensor_type_info *plain = tensor_type_info(id - IK_REPACKED);
    if (!plain && !find_foreign(id - IK_REPACKED, &base))
        return false;
    snprintf(out->name, sizeof out->name, "%.24s%s, repacked", plain ? plain->name : base.name,
             plain ? " of ik_llama.cpp" : "");
    out->take = plain ? plain->name : base.take;
    return true;
}

int tensor_type_from_name(const char *name)
{
    static const struct {
        const char *name;
        int id;
    } names[] = {
#define X(type, number, values, bytes, does) {#type, number},
        TENSOR_TYPE_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcasecmp(names[i].name, name) == 0)
            return names[i].id;
    return -1;
}
