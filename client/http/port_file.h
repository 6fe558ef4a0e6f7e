/* RUN/http.port: the port of a frontend that was to choose one, so that the next one of the
 * deployment has it too. */
#ifndef MOED_HTTP_PORT_FILE_H
#define MOED_HTTP_PORT_FILE_H

#include <stdint.h>

/* 0: there is none, or the file holds something else. */
uint16_t port_file_read(const char *run);
/* Logs a failure: the next frontend then chooses another port. */
void port_file_write(const char *run, unsigned port);

#endif
