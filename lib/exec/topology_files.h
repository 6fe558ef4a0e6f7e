/* Private to lib/exec: reading the kernel's description of the machine. */
#ifndef MOED_EXEC_TOPOLOGY_FILES_H
#define MOED_EXEC_TOPOLOGY_FILES_H

#include "exec/topology.h"

#define PATH_BYTES 4400

/* Reads the first line of ROOT/path. False: there is none. */
bool topology_read_line(const char *root, const char *path, char line[PATH_BYTES]);
/* True: the list, as "0-3,8", names the number. *lowest: the lowest number of the list. */
bool topology_list_names(const char *list, unsigned number, unsigned *lowest);

/* Sets the nodes of t and those of its CPUs. Omits nodes without any of the CPUs. */
void topology_read_nodes(const char *root, struct topology *t);

#endif
