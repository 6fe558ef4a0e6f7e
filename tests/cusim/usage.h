/* The bytes that are allocated of each device: by this process, or, where MOED_CUSIM_SHARED names a
 * file, by all living processes with that file. */
#ifndef CUSIM_USAGE_H
#define CUSIM_USAGE_H

/* False: more than `most` would be allocated; nothing has changed. With the lock. */
bool usage_take(int device, unsigned long long bytes, unsigned long long most);
void usage_give(int device, unsigned long long bytes);
unsigned long long usage_of(int device);

#endif
