/* The memory nodes of the machine; see topology.h. */
#include "exec/topology_files.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_IDS 1024 /* the kernel's numbers of nodes are below */

bool topology_read_line(const char *root, const char *path, char line[PATH_BYTES])
{
    char full[2 * PATH_BYTES];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "re");
    if (!f)
        return false;
    bool ok = fgets(line, PATH_BYTES, f) != NULL;
    fclose(f);
    return ok;
}

bool topology_list_names(const char *list, unsigned number, unsigned *lowest)
{
    bool named = false;
    *lowest = UINT16_MAX;
    while (*list) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list)
            break;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        named |= number >= first && number <= last;
        *lowest = first < *lowest ? (unsigned)first : *lowest;
        list = *end == ',' ? end + 1 : "";
    }
    return named;
}

/* ---- Distances ---- */

static unsigned apart(unsigned a, unsigned b)
{
    return a > b ? a - b : b - a;
}

/* The kernel's distances from a node; where they are not known, by number. */
static void read_distances(const char *root, unsigned id, unsigned distances[MAX_IDS])
{
    char path[128], online[PATH_BYTES], line[PATH_BYTES];
    unsigned lowest;
    for (unsigned i = 0; i < MAX_IDS; i++)
        distances[i] = MAX_IDS + apart(i, id);
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/distance", id);
    if (!topology_read_line(root, "/sys/devices/system/node/online", online) ||
        !topology_read_line(root, path, line))
        return;
    char *at = line, *end; /* one number for each node that is online, ascending */
    for (unsigned i = 0; i < MAX_IDS; i++) {
        if (!topology_list_names(online, i, &lowest))
            continue;
        unsigned distance = (unsigned)strtoul(at, &end, 10);
        if (end == at)
            return;
        distances[i] = distance;
        at = end;
    }
}

/* The position of the nearest of n nodes; of equally near ones the nearest by number. n > 0. */
static unsigned nearest(const char *root, unsigned id, const uint16_t *ids, unsigned n)
{
    unsigned distances[MAX_IDS], best = 0;
    read_distances(root, id, distances);
    for (unsigned i = 1; i < n; i++) {
        unsigned d = distances[ids[i]], least = distances[ids[best]];
        if (d < least || (d == least && apart(ids[i], id) < apart(ids[best], id)))
            best = i;
    }
    return best;
}

/* ---- The CPUs' nodes ---- */

/* Once a process: its pools read the same. */
static void warn_of_many(void)
{
    static atomic_bool warned;
    if (!atomic_exchange(&warned, true))
        log_warn("more than %d memory nodes have CPUs: those of further nodes count as the "
                 "nearest node's",
                 TOPOLOGY_MAX_NODES);
}

/* The index of a node; a new one unless there are too many. */
static unsigned index_of_node(const char *root, struct topology *t, unsigned id)
{
    if (t->n_nodes == TOPOLOGY_MAX_NODES) {
        warn_of_many();
        return nearest(root, id, t->node_ids, t->n_nodes);
    }
    t->node_ids[t->n_nodes] = (uint16_t)id;
    return t->n_nodes++;
}

/* Gives the node those CPUs that its list names. Returns their number. */
static unsigned take_cpus(const char *root, struct topology *t, unsigned id, const char *list)
{
    unsigned n = 0, index = 0, lowest;
    for (unsigned i = 0; i < t->n_cpus; i++)
        if (topology_list_names(list, t->cpus[i].cpu, &lowest)) {
            if (n++ == 0)
                index = index_of_node(root, t, id);
            t->cpus[i].node = (uint16_t)index;
        }
    return n;
}

static bool has_nodes(const char *root)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/node", root);
    return access(path, F_OK) == 0;
}

/* ---- The nodes' memory ---- */

/* The nodes whose memory this process may use. "": not known. */
static void read_allowed_memory(const char *root, char list[PATH_BYTES])
{
    static const char name[] = "Mems_allowed_list:";
    char path[PATH_BYTES], *line = NULL;
    size_t bytes = 0;
    list[0] = '\0';
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    FILE *f = fopen(path, "re");
    while (f && getline(&line, &bytes, f) > 0)
        if (strncmp(line, name, sizeof name - 1) == 0)
            snprintf(list, PATH_BYTES, "%s", line + sizeof name - 1);
    free(line);
    if (f)
        fclose(f);
}

/* Sets memory_ids. Nodes without CPUs count too, as neighbours of those without memory. */
static void read_memory(const char *root, struct topology *t)
{
    char present[PATH_BYTES], allowed[PATH_BYTES];
    uint16_t ids[MAX_IDS];
    unsigned n = 0, lowest;
    memcpy(t->memory_ids, t->node_ids, sizeof t->memory_ids);
    bool known = topology_read_line(root, "/sys/devices/system/node/has_memory", present);
    read_allowed_memory(root, allowed);
    for (unsigned id = 0; id < MAX_IDS; id++)
        if ((known || allowed[0]) && (!known || topology_list_names(present, id, &lowest)) &&
            (!allowed[0] || topology_list_names(allowed, id, &lowest)))
            ids[n++] = (uint16_t)id;
    for (unsigned node = 0; n && node < t->n_nodes; node++)
        t->memory_ids[node] = ids[nearest(root, t->node_ids[node], ids, n)];
}

void topology_read_nodes(const char *root, struct topology *t)
{
    unsigned left = has_nodes(root) ? t->n_cpus : 0;
    for (unsigned id = 0; id < MAX_IDS && left; id++) {
        char path[128], list[PATH_BYTES];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", id);
        if (topology_read_line(root, path, list))
            left -= take_cpus(root, t, id, list);
    }
    if (!t->n_nodes)
        t->n_nodes = 1;
    read_memory(root, t);
}
