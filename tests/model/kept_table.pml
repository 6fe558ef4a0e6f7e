/* Model of a worker that keeps a copy of the residency table (worker/experts_alone.c), beside the slot protocol of
 * slots.pml: it looks at the table again only where the count of changes (residency_header.word_changes) is another. One slot that two
 * experts use in turn.
 *
 * Checked: what the copy names holds still for as long as the epoch lasts.
 * The count is a mark here, set by each change and cleared by the look, as a count that never comes round would be.
 * Epochs count modulo 4; one that comes round looks as if it had not passed, which only waits longer.
 *
 *   -DFAULT_LATE_CHANGES   the change is counted after memd has looked at the epochs
 *   -DFAULT_LATE_EPOCH     the worker looks at the count before its epoch
 * must each be found. */

#define EXPERTS 2

byte content;        /* of the slot; 0: poison; else the expert + 1 */
bool word[EXPERTS];  /* resident */
bool changed;        /* since the worker looked */
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
		(seen % 2 == 0 || epoch != seen); /* its grace */
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
				assert(content == e + 1) /* reading takes time: it must hold still */
			:: !there[e]
			fi
		:: break
		od;
		epoch = (epoch + 1) % 4
	od
}
