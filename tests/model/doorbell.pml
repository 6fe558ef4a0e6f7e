/* Model of lib/ipc/doorbell.c: a producer that publishes work and rings, a watcher that sets a stop flag and
 * rings (a death was noticed), and the consumer that sleeps and must see both. Names as in the source.
 *
 * The futex is modelled as the kernel does it: comparing the word with the value and queueing is one step;
 * a wake-up takes whoever is queued. Sleeps have no time limit here (in the source one lasts a second at
 * most): a lost wake-up is a deadlock, which spin reports as an invalid end state.
 *
 * Both precautions of the source, the second look (C4) and the comparison with the value from before the
 * first look (C1, C5, C6), are each enough against a lost wake-up in this model; with neither it is lost.
 *
 *   -DNO_SECOND_LOOK   without C4: still right
 *   -DLATE_VALUE       C1 after announcing: still right because of C4
 *   -DFAULT_NO_RECHECK both: sleeps on a fresh value without looking again: must be found
 *   -DFAULT_ASK_FIRST  sleepers are asked for before the work is published: must be found */

#ifdef FAULT_NO_RECHECK
#define NO_SECOND_LOOK
#define LATE_VALUE
#endif

#define WORK   3
#define COUNTS 8 /* the word wraps after more rings than there are here, as 2^32 in life */

byte work;      /* records published and not yet taken: stands for the ring */
bool stop;
byte count;     /* the futex word */
bool sleeping;
bool queued;    /* the consumer lies in the kernel's queue */

#define READY (work > 0 || stop)

#ifdef FAULT_ASK_FIRST
#define EARLY_P2 asked = sleeping
#define P2       skip
#else
#define EARLY_P2 skip
#define P2       asked = sleeping
#endif

inline ring()
{
	count = (count + 1) % COUNTS;   /* P1 */
	P2;
	if
	:: asked -> queued = false      /* FUTEX_WAKE; nothing where nobody is queued */
	:: else
	fi
}

active proctype producer()
{
	byte n;
	bool asked;
	do
	:: n < WORK ->
		EARLY_P2;
		d_step { work++; n++ };
		ring()
	:: else -> break
	od
}

active proctype watcher()
{
	bool asked;
	EARLY_P2;
	stop = true;
	ring()
}

active proctype consumer()
{
	byte seen, taken;
	bool found, stopped;
	do
	:: taken == WORK && stopped -> break
	:: else ->
		/* doorbell_wait, until it answers true */
#ifndef LATE_VALUE
		seen = count;                   /* C1 */
#endif
		found = READY;                  /* C2 */
		if
		:: !found ->
			sleeping = true;        /* C3 */
#ifdef LATE_VALUE
			seen = count;
#endif
#ifndef NO_SECOND_LOOK
			found = READY;          /* C4 */
#endif
			if
			:: !found && count == seen -> /* C5 */
				atomic {        /* C6 */
					if
					:: count == seen -> queued = true
					:: else
					fi
				};
				!queued
			:: else
			fi;
			sleeping = false
		:: else
		fi;
		/* what the caller does when there is something */
		if
		:: work > 0 -> d_step { work--; taken++ }
		:: work == 0 && stop && !stopped -> stop = false; stopped = true
		:: else
		fi
	od
}
