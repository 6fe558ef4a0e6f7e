/* The built-in files of bench/replay/machines (cmake/embed_text.cmake writes the table). */
#ifndef MOED_REPLAY_MACHINE_FILES_H
#define MOED_REPLAY_MACHINE_FILES_H

struct machine_file {
    const char *name, *text; /* without .machine */
};

extern const struct machine_file machine_files[]; /* by name; ends with a NULL name */

#endif
