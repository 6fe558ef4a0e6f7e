/* Model of the queue of copies: memd/device/cache_link.c and cache_copies.c, the link (lib/device/link.h) as a process of its own, and
 * a worker whose stream waits for flags (worker/experts/experts_device.c). It adds to slots.pml -DFLAGS that several copies are queued,
 * of one expert too, and that a worker waits for the last of an expert's segments alone (compute_at_once).
 *
 * Expert 0 has segments 0 and 1, expert 1 has segment 2; two slots; a queue of two copies. The link makes the copies in order, or two of
 * them as one (a batch: all bytes, then the flags). memd decides, evicts and reclaims while copies are queued, and ends them in order.
 *
 * Checked: a worker reads the segment that it asked for, also the ones before the one for whose flag it waited; a slot keeps its bytes for
 * as long as the epoch lasts; an expert's segments are a prefix; when memd dies the link makes all, some or none of what is queued, and the
 * worker, which may die too, reads nothing wrong.
 *
 *   -DFAULT_OUT_OF_ORDER       the link may make the second copy first
 *   -DFAULT_FLAGS_FIRST        the flags of a batch are written after the bytes of its first segment
 *   -DFAULT_END_ALL            memd ends all copies when the oldest is made
 *   -DFAULT_ONE_ANNOUNCEMENT   an expert has one announcement, not one for each segment
 *   -DFAULT_EVICT_FILLING      memd evicts from an expert that has a segment in flight
 *   -DFAULT_EARLY_REUSE        memd reuses a slot during the epoch in which it retired it
 * must each be found. */

#define SLOTS    2
#define SEGMENTS 3
#define NONE     3

#define FREE     0
#define FILLING  1
#define RESIDENT 2
#define RETIRED  3

byte content[SLOTS];     /* 0: poison; else the segment + 1 */
byte flag[SLOTS];        /* modulo 2: within an epoch a slot is filled once; slots.pml has the circle */
byte word[2];            /* of an expert: resident + 4 * in flight */
byte number[SEGMENTS];   /* the slot of a resident segment */
byte to[SEGMENTS];       /* announced: the slot, and 4 times what its flag becomes */
byte epoch;
bool gone;               /* the kernel reported that the worker is */
bool memd_is_dead;

/* The link's queue. */
chan queue = [2] of { byte, byte, byte }; /* segment, slot, flag's value */
byte n_made;                              /* of the copies that memd has not ended */

/* memd's own */
byte state[SLOTS];
byte seen[SLOTS];
byte fills[SLOTS];
chan begun = [2] of { byte, byte };       /* segment, slot: the oldest first */

#define FIRST(e) ((e) * 2)
#define COUNT(e) (2 - (e))
#define EXPERT(segment) ((segment) / 2)
#define THERE(w) (w % 4 + w / 4)
#define HAS(segment) ((segment) - FIRST(EXPERT(segment)) < THERE(word[EXPERT(segment)]))
#define PASSED(s) (gone || seen[s] % 2 == 0 || epoch != seen[s])
#ifdef FAULT_EARLY_REUSE
#define MAY_REUSE(s) true
#else
#define MAY_REUSE(s) PASSED(s)
#endif
#ifdef FAULT_ONE_ANNOUNCEMENT
#define PLACE(segment) FIRST(EXPERT(segment))
#else
#define PLACE(segment) segment
#endif
#ifdef FAULT_EVICT_FILLING
#define MAY_EVICT(e) (word[e] % 4 > 0)
#else
#define MAY_EVICT(e) (word[e] % 4 > 0 && word[e] / 4 == 0)
#endif

/* Nobody looks at these any more: fewer states. */
inline forget(slot)
{
	if
	:: number[content[slot] - 1] == slot && !HAS(content[slot] - 1) -> number[content[slot] - 1] = 0
	:: else
	fi;
	if
	:: to[content[slot] - 1] % 4 == slot && !HAS(content[slot] - 1) -> to[content[slot] - 1] = 0
	:: else
	fi
}

active proctype memd()
{
	byte e, s, segment;
	do
	:: atomic { memd_is_dead = true; goto dead }
	:: atomic {
		if :: e = 0 :: e = 1 fi;
		if :: s = 0 :: s = 1 fi;
		if
		:: THERE(word[e]) < COUNT(e) && state[s] == FREE && len(begun) < 2 -> goto begins
		:: n_made > 0 && len(begun) > 0 -> n_made--; goto ends
		:: MAY_EVICT(e) && number[FIRST(e) + word[e] % 4 - 1] == s -> goto retires
		:: state[s] == RETIRED && MAY_REUSE(s) ->
			assert(content[s] > 0); /* else the link has yet to write there */
			forget(s); content[s] = 0; state[s] = FREE; seen[s] = 0
		:: else
		fi;
		e = 0; s = 0 };
		goto next;
begins:
		atomic {
			segment = FIRST(e) + THERE(word[e]);
			state[s] = FILLING;
			fills[s] = 1 - fills[s]
		};
		to[PLACE(segment)] = s + 4 * fills[s];
		word[e] = word[e] + 4;
		atomic { begun!segment, s; queue!segment, s, fills[s]; e = 0; s = 0; segment = 0 };
		goto next;
ends:		begun?segment, s;
		number[segment] = s; /* number, then word: slots.pml */
		atomic {
			/* the one after the resident ones, else the expert is no prefix */
			assert(segment == FIRST(EXPERT(segment)) + word[EXPERT(segment)] % 4);
			word[EXPERT(segment)] = word[EXPERT(segment)] + 1 - 4;
			state[s] = RESIDENT;
			e = 0; s = 0; segment = 0;
#ifdef FAULT_END_ALL
			if
			:: len(begun) > 0 -> goto ends
			:: else
			fi
#endif
		};
		goto next;
retires:
		word[e] = word[e] - 1;
		d_step { seen[s] = epoch; state[s] = RETIRED; e = 0; s = 0 };
next:		skip
	od;
dead:	skip
}

active proctype link()
{
	byte a, at, value, b, bt, value_b;
	b = NONE;
end:	do
	:: atomic { memd_is_dead && len(queue) > 0 -> goto dropped } /* with memd its device's work ends */
	:: atomic {
		queue?a, at, value;
		if
#ifdef FAULT_OUT_OF_ORDER
		:: len(queue) > 0 -> /* the second one first */
			b = a; bt = at; value_b = value;
			queue?a, at, value
#endif
		:: len(queue) > 0 -> queue?b, bt, value_b /* a batch */
		:: true
		fi };
		content[at] = a + 1;             /* poison until then: memd reclaimed the slot */
#if defined(FAULT_FLAGS_FIRST) || defined(FAULT_OUT_OF_ORDER)
		flag[at] = value;
#ifdef FAULT_FLAGS_FIRST
		if
		:: b != NONE -> flag[bt] = value_b
		:: else
		fi;
#endif
#endif
		if
		:: b != NONE -> content[bt] = b + 1
		:: else
		fi;
		flag[at] = value;
		if
		:: b != NONE -> flag[bt] = value_b
		:: else
		fi;
		d_step {
			n_made = n_made + (b == NONE -> 1 : 2);
			a = 0; at = 0; value = 0; b = NONE; bt = 0; value_b = 0
		}
	od;
dropped: skip
}

#define REACHED(place) (flag[place % 4] == place / 4)

active proctype worker()
{
	byte segment, before, place, first;
	do
	:: true ->
		epoch = (epoch + 1) % 4;         /* R1 */
		do
		:: atomic {
			if :: segment = 0 :: segment = 1 :: segment = 2 fi;
			before = word[EXPERT(segment)]
			};
again:			if
			:: segment - FIRST(EXPERT(segment)) < before % 4 -> /* resident */
				place = number[segment];
				assert(content[place] == segment + 1);
				assert(content[place] == segment + 1)
			:: segment - FIRST(EXPERT(segment)) >= before % 4 &&
			   segment - FIRST(EXPERT(segment)) < THERE(before) -> /* residency_arriving */
				place = to[PLACE(segment)];
				if
				:: word[EXPERT(segment)] != before -> before = word[EXPERT(segment)]; goto again
				:: else
				fi;
				first = NONE;
				if
				:: segment == 1 && before % 4 == 0 -> /* both at once: where the first will be */
					first = to[PLACE(0)];
					if
					:: word[0] != before -> before = word[0]; goto again
					:: else
					fi
				:: else
				fi;
end_waits:			REACHED(place);          /* for the last one's flag alone */
				assert(content[place % 4] == segment + 1);
				assert(first == NONE || content[first % 4] == 1);
				atomic { assert(content[place % 4] == segment + 1); segment = 0 }
			:: else
			fi;
			d_step { segment = 0; before = 0; place = 0; first = NONE }
		:: break
		:: goto dead
		od;
		epoch = (epoch + 1) % 4          /* R4 */
	od;
dead:	gone = true
}
