/* libmoed: numbers that no other request has. */
#ifndef MOED_CLIENT_RANDOM_H
#define MOED_CLIENT_RANDOM_H

#include <stdint.h>

uint64_t random_number(void);

#endif
