/* Gives up what the frontend does not need, before it reads a byte from a client: capabilities, new
 * programs, files beyond the deployments' runtime directories, connections to other machines. What
 * a fault in it can reach is then what its clients can ask for anyway. */
#ifndef MOED_HTTP_CONFINE_H
#define MOED_HTTP_CONFINE_H

/* run: the frontend's runtime directory, where it makes its control socket. Call it after the
 * listening sockets are open and before any thread that handles clients' data starts. What the
 * kernel does not have is left out, and logged. */
void confine(const char *run);

#endif
