/* Events in the order of a stream; the functions of struct device_module of the same names. */
#ifndef MOED_DEVICE_CUDA_EVENT_H
#define MOED_DEVICE_CUDA_EVENT_H

#include "stream.h"

enum error_code cuda_event_new(struct device *d, struct device_event **out, struct error *e);
void cuda_event_free(struct device_event *v); /* takes NULL */
void cuda_event_record(struct device_event *v, struct device_stream *s);
void cuda_stream_wait(struct device_stream *s, struct device_event *v);
enum error_code cuda_event_query(struct device_event *v, bool *done, struct error *e);
enum error_code cuda_event_wait(struct device_event *v, struct error *e);

#endif
