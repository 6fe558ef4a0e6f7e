/* Model of how memd adds an extent to the device's arena and removes it while workers read there: lib/ipc/arena_follow.h (A1 to A4,
 * W1 to W4, F1 to F3) with the epochs of slots.pml. One extent of one slot, which memd adds and removes again and again, at changing
 * addresses; memd may remove it before any worker has followed. A worker may fail to map it: then it does not store arena_seen. That
 * it stores arena_refused instead needs no variable: memd, which sees it, removes the extent, as it may at any time.
 *
 * Checked: a worker that finds the slot in the table has the present extent mapped, with the expert's bytes in it, for as long as its
 * epoch lasts; no worker maps memory that does not exist, and memd frees no memory that a worker has mapped; all this also when a
 * worker (here the first) dies at any point and memd continues without it.
 * Allocations, and so serials, are 1 and 2 in turn. `changes` counts modulo 4: memd waits after every second change at the latest.
 *
 *   -DFAULT_USE_AT_ONCE   A4 without A3
 *   -DFAULT_FREE_AT_ONCE  W4 without W3
 *   -DFAULT_IN_GRACE      W4 without W1 and W3: with the slot in its grace
 *   -DFAULT_SERIAL_FIRST  the serial before the handle
 *   -DFAULT_SEEN_LAST     F1 after F2
 *   -DFAULT_REFUSED_SEEN  F3 stores arena_seen also where the extent could not be mapped
 * must each be found. */

#define WORKERS 2
#define NEVER   7 /* the worker has not followed yet */

#define ABSENT   0
#define RESIDENT 1
#define RETIRED  2

byte memory;         /* the present allocation; 0: none */
byte content;        /* of the slot: 0 poison, 1 the expert */
byte serial, handle; /* the extent's entry */
byte changes;
bool word;           /* the expert is in the slot */
byte epoch[WORKERS];
byte seen[WORKERS];  /* arena_seen */
byte has[WORKERS];   /* the allocation that the worker has mapped */
bool gone[WORKERS];

/* memd's own */
byte state;
byte before[WORKERS]; /* the epochs when the slot was retired */

#define FOLLOWED(w)      (gone[w] || seen[w] == changes)
#define ALL_HAVE_FOLLOWED (FOLLOWED(0) && FOLLOWED(1))
#define PASSED(w)        (gone[w] || before[w] % 2 == 0 || epoch[w] != before[w])

#ifdef FAULT_USE_AT_ONCE
#define MAY_USE true
#else
#define MAY_USE ALL_HAVE_FOLLOWED /* A3 */
#endif

#if defined(FAULT_FREE_AT_ONCE) || defined(FAULT_IN_GRACE)
#define MAY_FREE true
#else
#define MAY_FREE ALL_HAVE_FOLLOWED /* W3 */
#endif

#ifdef FAULT_IN_GRACE
#define MAY_LEAVE true
#else
#define MAY_LEAVE (PASSED(0) && PASSED(1)) /* W1 */
#endif

active proctype memd()
{
	byte last = 2; /* the allocation before */
	do
	:: memory == 0 ->
		d_step { memory = 3 - last; last = memory; content = 0 }
#ifdef FAULT_SERIAL_FIRST
		serial = last;
		handle = last;
#else
		handle = last;                   /* A1 */
		serial = last;
#endif
		changes = (changes + 1) % 4      /* A2 */
	:: serial != 0 && state == ABSENT && MAY_USE ->
		content = 1;                     /* A4 */
		atomic { word = true; state = RESIDENT }
	:: state == RESIDENT ->
		word = false;
		before[0] = epoch[0];
		atomic { before[1] = epoch[1]; state = RETIRED }
	:: state == RETIRED && MAY_LEAVE ->
		d_step { content = 0; state = ABSENT; before[0] = 0; before[1] = 0 }
	:: serial != 0 && state == ABSENT ->
		serial = 0;                      /* W2 */
		changes = (changes + 1) % 4
	:: serial == 0 && memory != 0 && MAY_FREE ->
		d_step {
			assert((gone[0] || has[0] != memory) && (gone[1] || has[1] != memory));
			memory = 0                   /* W4 */
		}
	od
}

active [WORKERS] proctype worker()
{
	byte now, from, mine; /* the serial of what is mapped */
	bool refused;
	seen[_pid - 1] = NEVER;
	goto follow;
	do
	:: true ->
follow:
#ifndef FAULT_SEEN_LAST
		now = changes;                   /* F1 */
#endif
		from = serial;                   /* F2 */
		if
		:: from != mine ->
			atomic { has[_pid - 1] = 0; mine = 0 };
			if
			:: from != 0 ->
				atomic { has[_pid - 1] = handle; mine = from };
				assert(has[_pid - 1] == memory)
			:: from != 0 -> refused = true   /* it cannot map the extent */
			:: else
			fi
		:: else
		fi;
#ifdef FAULT_SEEN_LAST
		now = changes;
#endif
		atomic {
			if
			:: !refused -> seen[_pid - 1] = now /* F3 */
			:: else ->
#ifdef FAULT_REFUSED_SEEN
				seen[_pid - 1] = now;
#endif
				refused = false
			fi;
			now = 0; from = 0
		}
	:: true ->
		epoch[_pid - 1] = (epoch[_pid - 1] + 1) % 4;
		if
		:: word ->
			assert(has[_pid - 1] == memory && memory != 0 && content == 1);
			assert(has[_pid - 1] == memory && memory != 0 && content == 1) /* it holds still */
		:: else
		fi;
		if
		:: true -> epoch[_pid - 1] = (epoch[_pid - 1] + 1) % 4
		:: _pid == 1 -> goto dead        /* in the middle of its epoch */
		fi
	:: _pid == 1 -> goto dead
	od;
dead:	gone[_pid - 1] = true                    /* the kernel reports it */
}
