/* Model of lib/ipc/doorbell.c: a producer publishes work and rings, a watcher sets a stop flag and rings (it
 * noticed a death), and a consumer sleeps and must see both. Names as in the source.
 *
 * The futex is modelled as the kernel implements it: comparing the word with the value and queueing is one
 * step; a wake-up removes the queued consumer. Sleeps have no time limit here (in the source one lasts at most
 * a second): a lost wake-up is a deadlock, which spin reports as an invalid end state.
 *
 * The source has two precautions: the second look (C4), and the comparison with the value from before the
 * first look (C1, C5, C6). In this model each alone prevents a lost wake-up; without both one is lost.
 *
 *   -DNO_SECOND_LOOK   without C4: still right
 *   -DLATE_VALUE       C1 after announcing: still right because of C4
 *   -DFAULT_NO_RECHECK both: sleeps on a fresh value without looking again: must be found
 *   -DFAULT_ASK_FIRST  the producer reads `sleeping` before it publishes the work: must be found */

#ifdef FAULT_NO_RECHECK
#define NO_SECOND_LOOK
#define LATE_VALUE
#endif

#define WORK   3
#define COUNTS 8 /* the word wraps after more rings than there are here, as at 2^32 in the source */

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
	:: asked -> queued = false      /* FUTEX_WAKE; no effect where the consumer is not queued */
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
		/* doorbell_wait, until it returns true */
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
		/* the caller handles what it found */
		if
		:: work > 0 -> d_step { work--; taken++ }
		:: work == 0 && stop && !stopped -> stop = false; stopped = true
		:: else
		fi
	od
}
