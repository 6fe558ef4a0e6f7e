/* Model of lib/ipc/ring.c: one producer, one consumer, free-running indices that wrap; each side works from its
 * last copy of the other's index.
 *
 * Checked: no record is lost, repeated, overtaken or overwritten before it was read; the indices stay
 * 0..CAPACITY apart; both sides finish (no deadlock).
 * Spin interleaves whole statements in one order that all see. What the acquire and release orders are for is
 * left to the ThreadSanitizer test (tests/unit/test_ring.c).
 *
 *   -DFAULT_EARLY_PUBLISH  tail is published before the record is written: must be found
 *   -DFAULT_EARLY_FREE     head is published before the record is copied out: must be found */

#define CAPACITY 2
#define INDICES  4 /* the indices count modulo this, a multiple of CAPACITY */
#define RECORDS  7 /* over the wrap-around */

byte slot[CAPACITY]; /* 0: garbage; else the record's number + 1 */
byte head, tail;     /* as published */
byte received;

#define USED(t, h) ((t + INDICES - h) % INDICES)

active proctype producer()
{
	byte own, peer, n;
	do
	:: n < RECORDS ->
		if
		:: USED(own, peer) == CAPACITY ->
			peer = head;
			assert(USED(own, peer) <= CAPACITY);
			if
			:: USED(own, peer) == CAPACITY ->
				head != peer /* full: comes back when it is not */
				goto again
			:: else
			fi
		:: else
		fi;
#ifdef FAULT_EARLY_PUBLISH
		tail = (own + 1) % INDICES;
#endif
		slot[own % CAPACITY] = 0; /* a write takes time: between, it is garbage */
		slot[own % CAPACITY] = n + 1;
		own = (own + 1) % INDICES;
		tail = own;
		n++;
again:		skip
	:: else -> break
	od
}

active proctype consumer()
{
	byte own, peer, first, second;
	do
	:: received < RECORDS ->
		if
		:: own == peer ->
			peer = tail;
			assert(USED(peer, own) <= CAPACITY);
			if
			:: own == peer ->
				tail != own /* empty */
				goto again
			:: else
			fi
		:: else
		fi;
#ifdef FAULT_EARLY_FREE
		head = (own + 1) % INDICES;
#endif
		first = slot[own % CAPACITY]; /* a copy takes time: the record must hold still */
		second = slot[own % CAPACITY];
		assert(first == received + 1);
		assert(second == received + 1);
		own = (own + 1) % INDICES;
		head = own;
		received++;
again:		skip
	:: else -> break
	od
}
