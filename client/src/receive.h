/* libmoed: checks each message that the worker sends and hands it to its request. */
#ifndef MOED_CLIENT_RECEIVE_H
#define MOED_CLIENT_RECEIVE_H

#include "ipc/channel.h"

/* The channel's callback; its argument is the session. Runs on the channel's thread. A message that
 * breaks the protocol ends the session. */
channel_callback session_receive;

#endif
