/* Writes the seed of fuzz_predictors: a small file with every part. Usage: make_predictors FILE */
#include "train/image.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct trained_header h = {.magic = TRAINED_MAGIC,
                               .version = TRAINED_VERSION,
                               .n_layers = 4,
                               .first_layer = 1,
                               .n_experts = 3,
                               .n_used = 2,
                               .d_model = 4,
                               .n_groups = 1,
                               .stride = 2,
                               .n_tokens = 100,
                               .model = "seed"};
    const struct net_shape mlp = {4, 6, 3, 0, TRAINED_RELU, 0};
    const struct net_shape llapor = {2 + 2 * 3, 6, 3, 2, TRAINED_GELU, 0};
    const struct net_shape mtp = {2 * 4, 6, 3 * 3, 2 * 4, TRAINED_GELU, 0};
    float basis[8] = {1, 0, 0, 1, 1, 0, 0, 1}, bias[2] = {0.5f, -0.5f}, residual[4] = {1, 2, 3, 4};
    const struct pca pca = {.d = 4, .n = 2, .basis = basis, .bias = bias};
    struct noise r = noise_of(1, 2, 3);
    struct net nets[3];
    struct image m;
    if (argc != 2 || !image_init(&m, &h) || !net_init(&nets[0], &mlp, 1, &r) ||
        !net_init(&nets[1], &llapor, 1, &r) || !net_init(&nets[2], &mtp, 1, &r))
        return 1;
    image_place_residual(&m, 1);
    image_place_network(&m, &m.layers[3].mlp, &mlp);
    image_place_network(&m, &m.layers[3].llapor, &llapor);
    image_place_group(&m, 0, 2);
    image_place_mtp(&m, &mtp);
    if (!image_allocate(&m))
        return 1;
    image_fill_residual(&m, 1, residual);
    image_fill_network(&m, &m.layers[3].mlp, &nets[0]);
    image_fill_network(&m, &m.layers[3].llapor, &nets[1]);
    image_fill_group(&m, 0, &pca);
    image_fill_mtp(&m, &nets[2]);
    image_finish(&m);
    FILE *f = fopen(argv[1], "wb");
    bool done = f && fwrite(m.bytes, m.end, 1, f) == 1;
    return !(done && fclose(f) == 0);
}
