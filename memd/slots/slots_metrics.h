/* The metrics of slots that the expert cache and the host tier have in common. */
#ifndef MOED_MEMD_SLOTS_SLOTS_METRICS_H
#define MOED_MEMD_SLOTS_SLOTS_METRICS_H

#include "cache_slots.h"
#include "metrics/metrics.h"

/* The first rows of a group (metrics_group): the slots by their state. */
#define SLOTS_METRICS_ROWS(name, help)                                                             \
    {name, "state=\"free\"", help}, {name, "state=\"resident\"", help},                            \
        {name, "state=\"filling\"", help},                                                         \
    {                                                                                              \
        name, "state=\"retired\"", help                                                            \
    }

/* Fills the values of these rows; returns where the next row's value goes. */
double *slots_metrics_values(const struct slots_state *s, double *values);

#endif
