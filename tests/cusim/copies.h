/* cusim: copies of cp.async that threads of the running block have started. */
#ifndef CUSIM_COPIES_H
#define CUSIM_COPIES_H

/* No thread has any. */
void copies_begin_block(unsigned n_threads);
/* True: the thread has copies that it has not waited for. */
bool copies_pending(unsigned thread);

#endif
