/* Model of who uses a page of the KV pool (lib/ipc/kv_page.c): one page that two workers claim, fill, share, continue and evict. The
 * first worker dies at any point; memd then frees what it used (kv_page_forget) and gives its number to another worker.
 *
 * A record and a position's bytes hold the number of their content. Checked: what is pinned stays, and is what was found before; there
 * is one writer at a time; a reader without a pin believes only fields of the generation that it saw; in the end the page is idle,
 * whatever died.
 * There are CONTENTS contents. Spin interleaves whole statements in one order that all see; that the orders of kv_page.c suffice
 * is left to the ThreadSanitizer test (tests/unit/test_prefix_cache.c).
 *
 *   -DFAULT_LATE_EMPTY       the number of positions becomes 0 after the new generation, instead of before
 *   -DFAULT_SAME_GENERATION  an eviction does not change the generation
 *   -DFAULT_EVICT_PINNED     a page is evicted while it is pinned
 *   -DFAULT_NO_SECOND_LOOK   a reader without a pin does not look at the generation again
 *   -DFAULT_EARLY_FORGET     memd frees what the worker used before it is gone
 *   -DFAULT_KEEP_CLAIM       memd forgets a dead worker's pins only
 *   -DFAULT_NO_LOOK_AT_N     a page that is taken over has more positions by then
 * must each be found. */

#define CONTENTS 2

byte gen, writer, pins; /* the word: changed as a whole */
byte n, field;          /* the record */
byte bytes[2];          /* keys and values of two positions */
bool dead, gone;        /* of the first worker: it is to die; it has died */
byte writing;           /* workers that write now */
byte contents;          /* begun; the last one's number */
byte content_of[2 * CONTENTS + 2]; /* each generation's */

#define IDLE (writer == 0 && pins == 0)
#define MINE(w) (1 << w)

#ifdef FAULT_EVICT_PINNED
#define CLAIMABLE (writer == 0)
#else
#define CLAIMABLE IDLE
#endif

inline write(w)
{
	writing++;
	assert(writing == 1);
}

proctype worker(byte w)
{
	byte g, f, seen_n, seen_field;
	{
	do
	:: atomic { contents < CONTENTS -> g = gen }; /* claim, begin, fill a position, finish */
		if
		:: atomic { gen == g && CLAIMABLE ->
#ifndef FAULT_SAME_GENERATION
			gen = gen + gen % 2;
#endif
			writer = w + 1 }
		:: else -> goto next
		fi;
#ifndef FAULT_LATE_EMPTY
		n = 0;
#endif
		atomic {
#ifdef FAULT_SAME_GENERATION
			gen = (gen % 2 -> gen : gen + 1);
#else
			gen++;
#endif
			contents++;
			f = contents;
			content_of[gen] = f;
			pins = pins | MINE(w); write(w) };
#ifdef FAULT_LATE_EMPTY
		n = 0;
#endif
		field = f;
		bytes[0] = f;
		n = 1;
		atomic { writing--; writer = 0 };
		assert(content_of[gen] == f && field == f && bytes[0] == f);
		atomic { pins = pins & ~MINE(w); goto next }
	:: atomic { gen % 2 -> g = gen }; /* find it, pin it, read it, perhaps continue it */
		seen_n = n;
		if :: seen_n == 0 -> goto next :: else fi;
		seen_field = field;
#ifndef FAULT_NO_SECOND_LOOK
		if :: gen != g -> goto next :: else fi;
#endif
		assert(seen_field == content_of[g]);
		if
		:: atomic { gen == g -> pins = pins | MINE(w) }
		:: else -> goto next
		fi;
		assert(bytes[0] == seen_field && field == seen_field);
		if
		:: seen_n == 1 ->
			if
			:: atomic { writer == 0 -> writer = w + 1 } ->
				if
#ifdef FAULT_NO_LOOK_AT_N
				:: true ->
#else
				:: n == 1 ->
#endif
					atomic { write(w); assert(n == 1) };
					bytes[1] = seen_field;
					n = 2;
					atomic { writing--; writer = 0 }
				:: else -> atomic { writer = 0 }
				fi
			:: else
			fi
		:: true
		fi;
		assert(gen == g && bytes[0] == seen_field && (n < 2 || bytes[1] == seen_field));
		atomic { pins = pins & ~MINE(w) }
	:: break
next:	skip; atomic { g = 0; f = 0; seen_n = 0; seen_field = 0 } /* what it remembers makes no difference */
	od
	} unless { w == 0 && dead };
	atomic { g = 0; f = 0; seen_n = 0; seen_field = 0 };
	if
	:: w == 0 -> atomic { writing = (writer == 1 -> 0 : writing); gone = true }
	:: else
	fi
}

/* Waits for the death, frees, and lets another worker have the number. */
active proctype memd()
{
	pid first, other;
	atomic { first = run worker(0); other = run worker(1) };
	if
	:: dead = true;
#ifndef FAULT_EARLY_FORGET
		gone;
#endif
		if
		:: atomic { writer == 1 && gen % 2 == 0 -> skip };
			n = 0;
#ifndef FAULT_KEEP_CLAIM
			atomic { writer = 0 }
#endif
		:: else ->
			atomic {
#ifndef FAULT_KEEP_CLAIM
				if :: writer == 1 -> writer = 0 :: else fi;
#endif
				pins = pins & ~MINE(0) }
		fi;
		gone;
		atomic { dead = false; gone = false; run worker(0) }
	:: true
	fi;
	(_nr_pr == 1);
	assert(IDLE)
}
