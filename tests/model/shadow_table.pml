/* Model of a worker's shadow residency table (worker/experts/device_only.c) under the slot protocol of slots.pml: the worker reads the
 * table again only when the count of changes (residency_header.word_changes) has grown. One slot that two experts use in turn.
 *
 * Checked: a slot that the shadow table names keeps its bytes for as long as the epoch lasts.
 * The count is a flag here: each change sets it and the worker's read clears it, as if the count never wrapped.
 * Epochs count modulo 4; one that wraps looks as if it had not passed, and memd only waits longer.
 *
 *   -DFAULT_LATE_CHANGES   memd counts the change after it has read the epochs
 *   -DFAULT_LATE_EPOCH     the worker reads the count before it makes its epoch odd
 * must each be found. */

#define EXPERTS 2

byte content;        /* of the slot; 0: poison; else the expert + 1 */
bool word[EXPERTS];  /* resident */
bool changed;        /* since the worker's last read */
byte epoch;

active proctype memd()
{
	byte e, seen;
	do
	:: true ->
		if :: e = 0 :: e = 1 fi;
		content = e + 1;
		word[e] = true;
		changed = true;
		skip; /* any time */
		word[e] = false;
#ifndef FAULT_LATE_CHANGES
		changed = true;
#endif
		seen = epoch;
#ifdef FAULT_LATE_CHANGES
		changed = true;
#endif
		(seen % 2 == 0 || epoch != seen); /* the grace period */
		content = 0
	od
}

active proctype worker()
{
	bool there[EXPERTS], look;
	byte e;
	do
	:: true ->
#ifdef FAULT_LATE_EPOCH
		atomic { look = changed; changed = false };
		epoch = (epoch + 1) % 4;
#else
		epoch = (epoch + 1) % 4;
		atomic { look = changed; changed = false };
#endif
		if
		:: look ->
			there[0] = word[0];
			there[1] = word[1]
		:: !look
		fi;
		do
		:: true ->
			if :: e = 0 :: e = 1 fi;
			if
			:: there[e] ->
				assert(content == e + 1);
				assert(content == e + 1) /* reading takes time: the bytes must not change */
			:: !there[e]
			fi
		:: break
		od;
		epoch = (epoch + 1) % 4
	od
}
