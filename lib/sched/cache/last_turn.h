/* What an activation in a layer's last turn says about its next one, beyond the count of recent
 * activations. Pure.
 *
 * A count over many steps orders the experts well. Marginal experts are those that just fit the
 * device, or just do not: the differences of their counts are mostly chance. But a layer often
 * activates the same expert twice running. How often depends on the text and on the number of
 * sequences, so it is fitted while serving: for the marginal experts, by least squares,
 *
 *     weight of the next activation = a * expected by the count + b * weight of the last + c.
 *
 * An activation in the last turn is then worth b / a of one that the count expects: in the next
 * turn. A marginal expert stays for some LAST_TURN_STAYS turns, so it counts as much less. */
#ifndef MOED_SCHED_CACHE_LAST_TURN_H
#define MOED_SCHED_CACHE_LAST_TURN_H

/* Turns that a marginal expert stays on the device. In the fit, 2.5 and 10 give the same speed
 * within 0.1 % on average. */
#define LAST_TURN_STAYS 5

struct last_turn {
    /* Decayed sums: p expected, x the last weight, y the next one. */
    double n, p, x, y, pp, px, xx, py, xy;
    double worth; /* of the last weight, of an expected one; 0 until it is known */
};

/* One marginal expert's turn. */
void last_turn_observe(struct last_turn *t, double expected, double last, double next);
void last_turn_step_over(struct last_turn *t);

#endif
