/* Computes the mean negative log-likelihood of the tokens after the first from rows of golden
 * logits: the value that `moed perplexity` must print for them.
 *
 *   golden-nll LOGITS VOCAB TOKENS
 *
 * LOGITS: little-endian float32, row i follows token i. TOKENS: ids in text. All sums in double
 * precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double log_softmax(const float *row, size_t vocab, size_t token)
{
    double sum = 0;
    for (size_t i = 0; i < vocab; i++)
        sum += exp((double)row[i] - row[token]);
    return -log(sum);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: golden-nll LOGITS VOCAB TOKENS\n");
        return 2;
    }
    size_t vocab = strtoul(argv[2], NULL, 10), token, n = 0;
    FILE *logits = fopen(argv[1], "rb"), *tokens = fopen(argv[3], "r");
    float *row = calloc(vocab, sizeof *row);
    double sum = 0;
    if (!logits || !tokens || !row || fscanf(tokens, "%zu", &token) != 1) {
        fprintf(stderr, "golden-nll: %s or %s cannot be read\n", argv[1], argv[3]);
        return 2;
    }
    while (fscanf(tokens, "%zu", &token) == 1 && token < vocab &&
           fread(row, sizeof *row, vocab, logits) == vocab) {
        sum -= log_softmax(row, vocab, token);
        n++;
    }
    if (n == 0 || !feof(tokens)) {
        fprintf(stderr, "golden-nll: %s has fewer rows than %s tokens\n", argv[1], argv[3]);
        return 2;
    }
    printf("%.9f\n", sum / (double)n);
    free(row);
    fclose(logits);
    fclose(tokens);
    return 0;
}
