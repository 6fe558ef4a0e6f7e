/* Model of the slot protocol of memd/slots/cache_slots.c, memd/device/cache_copies.c and memd/host/tier_jobs.c (M1 to M4) and of the
 * worker that reads under its epoch (R1 to R4). Two experts of one segment and two slots, which memd reuses all the time.
 *
 * An expert whose slot is retired, or free and not poisoned, may get it back: the host tier does that (tier_restore and take_slot) and
 * poisons nothing; the device's cache does not.
 *
 * Checked: a worker that found a slot in the table reads that expert's bytes in it for as long as its epoch lasts, never poison and
 * never another's; also when a worker (here the first) dies at any point and memd continues without it, and when an old word leads
 * the worker to a newer slot number.
 * Spin interleaves whole statements in one order that all see, so it models the sequentially consistent operations as they are. That
 * they order the bytes themselves is left to the ThreadSanitizer test (tests/unit/test_cache.c).
 * Epochs count modulo 4 here; one that wraps looks as if it had not passed, and memd only waits longer.
 *
 * -DFLAGS: the device's cache where slots have flags (ipc/residency.h, residency_arriving). memd restores no slot there. A reader also
 * takes a segment in flight, announced with its slot and the number that the flag will have, and reads once the flag has that number,
 * for which the device's streams wait. (Experts have one segment here, and one copy is made at a time; copies.pml has more of both.)
 *
 *   -DFAULT_EARLY_REUSE         one epoch early: memd reuses a slot during the epoch in which it retired it
 *   -DFAULT_SEEN_BEFORE_WORD    M2 before M1
 *   -DFAULT_LATE_EPOCH          R2 before R1
 *   -DFAULT_NUMBER_BEFORE_BYTES the slot number is stored before the copy is made
 *   -DFAULT_RESTORE_OTHERS      an expert gets back a slot that it once had
 *   -DFLAGS -DFAULT_FLAG_BEFORE_BYTES    the flag is written before the copy is made
 *   -DFLAGS -DFAULT_WORD_BEFORE_SLOT     in flight before its slot is announced
 *   -DFLAGS -DFAULT_SAME_NUMBER          a slot's flag has the same number after each copy
 *   -DFLAGS -DFAULT_EARLY_REUSE          as above, with FLAGS
 * must each be found. */

#ifdef FLAGS
#define WORKERS 1 /* flags add nothing between workers */
#else
#define WORKERS 2
#endif
#define SLOTS   2
#define EXPERTS 2

#define FREE     0
#define RESIDENT 1
#define RETIRED  2

byte content[SLOTS];   /* 0: poison; else the expert + 1 */
byte word[EXPERTS];    /* 0: not there; 1: resident; 2: in flight */
byte number[EXPERTS];  /* its slot */
byte epoch[WORKERS];
bool gone[WORKERS];
#ifdef FLAGS
byte flag[SLOTS];      /* in the device's memory; modulo 4 */
byte to[EXPERTS];      /* announced: the slot, and 4 times what its flag becomes, in one word */
byte fills[SLOTS];     /* memd's own */
#endif

/* memd's own */
byte state[SLOTS];
byte seen[4];          /* [slot * WORKERS + worker] */

#define CHOOSE(x) if :: x = 0 :: x = 1 fi /* of two experts, or slots */

#define EPOCH_ON  epoch[_pid - 1] = (epoch[_pid - 1] + 1) % 4

#define PASSED(s, w) (gone[w] || seen[s * WORKERS + w] % 2 == 0 || epoch[w] != seen[s * WORKERS + w])

inline fill(e, s)
{
#ifdef FAULT_NUMBER_BEFORE_BYTES
	number[e] = s;
#endif
#ifdef FLAGS
#ifndef FAULT_SAME_NUMBER
	fills[s] = (fills[s] + 1) % 4;
#endif
#ifdef FAULT_WORD_BEFORE_SLOT
	word[e] = 2;
	to[e] = s + 4 * fills[s];
#else
	to[e] = s + 4 * fills[s];
	word[e] = 2;
#endif
#ifdef FAULT_FLAG_BEFORE_BYTES
	flag[s] = fills[s];
#endif
#endif
	content[s] = e + 1;
#ifdef FLAGS
	flag[s] = fills[s];
#endif
	number[e] = s;
	d_step { word[e] = 1; state[s] = RESIDENT; e = 0; s = 0 }
}

inline retire(e, s)
{
#ifndef FAULT_SEEN_BEFORE_WORD
	word[e] = 0;                     /* M1 */
#endif
	seen[s * WORKERS] = epoch[0];    /* M2 */
#if WORKERS > 1
	seen[s * WORKERS + 1] = epoch[1];
#endif
#ifdef FAULT_SEEN_BEFORE_WORD
	word[e] = 0;
#endif
	d_step { state[s] = RETIRED; e = 0; s = 0 }
}

#ifdef FAULT_EARLY_REUSE
#define MAY_REUSE(s) true
#else
#if WORKERS > 1
#define MAY_REUSE(s) (PASSED(s, 0) && PASSED(s, 1)) /* M3 */
#else
#define MAY_REUSE(s) PASSED(s, 0)
#endif
#endif

#ifdef FAULT_RESTORE_OTHERS
#define IS_OWN(e, s) (number[e] == s)
#else
#define IS_OWN(e, s) (content[s] == e + 1)
#endif

#ifndef FLAGS
inline restore(e, s)
{
	d_step {
		state[s] = RESIDENT;
		number[e] = s;
		seen[s * WORKERS] = 0;
		seen[s * WORKERS + 1] = 0
	}
	d_step { word[e] = 1; e = 0; s = 0 }
}
#endif

inline reclaim(s, left)
{
	d_step {
		content[s] = left;       /* M4; the host tier does not write before it fills the slot */
		state[s] = FREE;
		seen[s * WORKERS] = 0;
#if WORKERS > 1
		seen[s * WORKERS + 1] = 0;
#endif
		e = 0; s = 0
	}
}

/* Choices, and steps on private variables, are joined with a step on shared memory: fewer states. */
active proctype memd()
{
	byte e, s;
	do
	:: atomic {
		CHOOSE(e); CHOOSE(s);
		if
		:: !word[e] && state[s] == FREE -> goto filling /* one copy at a time: this process makes it */
		:: word[e] && number[e] == s -> goto retiring
#ifndef FLAGS
		:: !word[e] && state[s] != RESIDENT && IS_OWN(e, s) -> goto restoring
#endif
		:: state[s] == RETIRED && MAY_REUSE(s) -> reclaim(s, 0)
#ifndef FLAGS
		:: state[s] == RETIRED && MAY_REUSE(s) -> reclaim(s, content[s])
#endif
		:: else -> e = 0; s = 0
		fi };
		goto next;
filling:	fill(e, s);
		goto next;
#ifndef FLAGS
restoring:	restore(e, s);
		goto next;
#endif
retiring:	retire(e, s);
next:		skip
	od
}

active [WORKERS] proctype worker()
{
	byte e, s;
	do
	:: true ->
#ifndef FAULT_LATE_EPOCH
		EPOCH_ON; /* R1 */
#endif
		do
		:: atomic {
			CHOOSE(e);
			if
			:: word[e] == 1          /* R2 */
#ifdef FLAGS
			:: word[e] == 2 -> goto arriving
#endif
			:: else -> e = 0; goto absent
			fi };
#ifdef FAULT_LATE_EPOCH
			if
			:: epoch[_pid - 1] % 2 == 0 -> EPOCH_ON
			:: else
			fi;
#endif
			s = number[e];
			assert(content[s] == e + 1); /* R3; reading takes time: the bytes must not change */
			atomic { assert(content[s] == e + 1); e = 0; s = 0 };
#ifdef FLAGS
			goto absent;
arriving:		s = to[e];
			((flag[s % 4] + 4 - s / 4) % 4 < 2);  /* the stream waits: a circle's half is reached */
			assert(content[s % 4] == e + 1);
			atomic { assert(content[s % 4] == e + 1); e = 0; s = 0 };
#endif
absent:			skip
		:: break
		:: _pid == 1 -> goto dead        /* in the middle of its epoch */
		od;
#ifdef FAULT_LATE_EPOCH
		if
		:: epoch[_pid - 1] % 2 == 0 -> goto again
		:: else
		fi;
#endif
		EPOCH_ON; /* R4 */
again:		skip
	od;
dead:	gone[_pid - 1] = true                    /* the kernel reports it */
}
