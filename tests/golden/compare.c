/* Compares rows of logits with a golden file.
 *
 *   golden-compare GOT WANT VOCAB absolute LIMIT    largest absolute difference at most LIMIT
 *   golden-compare GOT WANT VOCAB peer PEER         median over rows of the relative L2 distance to
 *                                                   WANT at most that of the file PEER
 *   golden-compare GOT WANT VOCAB relative LIMIT    the same median at most LIMIT
 *
 * Files are little-endian float32, a row of VOCAB values per token. Prints the figures. Exit codes:
 * 0 within the limit, 1 beyond it, 2 the files cannot be compared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *read_rows(const char *path, size_t vocab, size_t *n_rows)
{
    FILE *f = fopen(path, "rb");
    float *rows = NULL;
    size_t n = 0, got;
    do {
        float *grown = realloc(rows, (n + 1) * vocab * sizeof *rows);
        if (!f || !grown) {
            fprintf(stderr, "%s: cannot be read\n", path);
            exit(2);
        }
        rows = grown;
        got = fread(rows + n * vocab, sizeof *rows, vocab, f);
        n += got == vocab;
    } while (got == vocab);
    fclose(f);
    if (got != 0 || n == 0) {
        fprintf(stderr, "%s: not a whole number of rows of %zu floats\n", path, vocab);
        exit(2);
    }
    *n_rows = n;
    return rows;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over rows of |got - want| / |want|; a NaN counts as infinitely far. */
static double median_distance(const float *got, const float *want, size_t rows, size_t vocab)
{
    double *distance = malloc(rows * sizeof *distance);
    for (size_t r = 0; distance && r < rows; r++) {
        double difference = 0, size = 0;
        for (size_t i = r * vocab; i < (r + 1) * vocab; i++) {
            difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
            size += (double)want[i] * want[i];
        }
        distance[r] = isnan(difference) ? INFINITY : sqrt(difference / size);
    }
    if (!distance)
        exit(2);
    qsort(distance, rows, sizeof *distance, ascending);
    double median =
        rows % 2 ? distance[rows / 2] : (distance[rows / 2 - 1] + distance[rows / 2]) / 2;
    free(distance);
    return median;
}

static double largest_difference(const float *got, const float *want, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= most))
            most = isnan(d) ? INFINITY : d;
    }
    return most;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: golden-compare GOT WANT VOCAB absolute|relative|peer LIMIT|PEER\n");
        return 2;
    }
    size_t vocab = strtoul(argv[3], NULL, 10), n_got, n_want, n_peer;
    float *got = read_rows(argv[1], vocab, &n_got), *want = read_rows(argv[2], vocab, &n_want);
    double figure, limit;
    if (n_got != n_want) {
        fprintf(stderr, "%s has %zu rows, %s has %zu\n", argv[1], n_got, argv[2], n_want);
        return 2;
    }
    if (strcmp(argv[4], "absolute") == 0) {
        figure = largest_difference(got, want, n_got * vocab);
        limit = strtod(argv[5], NULL);
    } else if (strcmp(argv[4], "relative") == 0) {
        figure = median_distance(got, want, n_got, vocab);
        limit = strtod(argv[5], NULL);
    } else {
        float *peer = read_rows(argv[5], vocab, &n_peer);
        figure = median_distance(got, want, n_got, vocab);
        limit = n_peer == n_want ? median_distance(peer, want, n_peer, vocab) : -1;
        free(peer);
    }
    printf("%-9s %.3g, limit %.3g: %s\n", argv[4], figure, limit,
           figure <= limit ? "ok" : "TOO FAR");
    free(got);
    free(want);
    return figure <= limit ? 0 : 1;
}
