/* What a kernel costs that does nothing: in a queue, in a graph, and waited for; see bench.h. */
#include "bench/device/bench.h"

#include <stdio.h>

struct launching {
    float *x; /* one float and its gate: the smallest operation */
    struct device_graph *graph;
    unsigned n;
};

static void launch_one(void *arg, unsigned turn)
{
    const struct launching *l = arg;
    (void)turn;
    module->ops.gate_by_sigmoid(stream, l->x + 1, l->x, 1);
}

static void launch_and_wait(void *arg, unsigned turn)
{
    launch_one(arg, turn);
    finish();
}

static void launch_graph(void *arg, unsigned turn)
{
    const struct launching *l = arg;
    (void)turn;
    module->graph_launch(stream, l->graph);
}

/* Seconds of a graph of n kernels; 0: there is no memory for it. */
static double graph_seconds(struct launching *l, unsigned n)
{
    struct error e;
    module->graph_begin(stream);
    for (unsigned i = 0; i < n; i++)
        launch_one(l, i);
    enum error_code code = module->graph_end(stream, &l->graph, &e);
    if (code == ERROR_MEMORY)
        return 0;
    if (code)
        fail(&e);
    double s = measure(launch_graph, l);
    finish();
    module->graph_free(l->graph);
    return s;
}

void bench_launches(void)
{
    struct launching l = {.x = allocate_filled(2 * sizeof(float), 0)};
    print_heading("a kernel that does nothing");
    bounds.kernel_s = measure(launch_one, &l);
    print_time("queued one by one, each", bounds.kernel_s, 0);
    print_time("launched and waited for", measure(launch_and_wait, &l), bounds.kernel_s);
    double ten = graph_seconds(&l, 10), thousand = graph_seconds(&l, 1000);
    if (!ten || !thousand) {
        printf("no memory for a graph\n");
    } else {
        double node = (thousand - ten) / 990;
        print_time("a further node of a graph", node, 0);
        print_time("a graph of 10 nodes", ten, 10 * node);
        print_time("a graph of 1,000 nodes", thousand, 1000 * node);
        if (!simulated)
            printf("figure: a kernel %.2f us queued, %.2f us in a graph\n", bounds.kernel_s * 1e6,
                   node * 1e6);
    }
    module->release(device, l.x);
}
