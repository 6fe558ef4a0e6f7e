/* memd's reply to people who watch where the experts are (place_map.h). */
#ifndef MOED_MEMD_WATCH_H
#define MOED_MEMD_WATCH_H

#include "memd.h"

enum error_code memd_reply_placement_map(struct memd *m,
                                         const Moed__V1__PlacementMapRequest *request,
                                         Moed__V1__Reply *reply, struct error *e);

#endif
