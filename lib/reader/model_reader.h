/* Reads the metadata of a model file, which is untrusted, in a process of its own: its keys, its
 * tensors' descriptions, its tokenizer. The process can do nothing but compute (confine/calls.h,
 * CONFINE_READER). It hands over the hyper-parameters and the tensors, which the caller's process
 * checks before it plans the pool by them. So a fault of a parser costs an error line, and an
 * attacker who takes the process over gains nothing but another, checked, description of a model.
 *
 * The tokenizer stays in the metadata, whose bytes memd copies into the pool; that it can be read
 * was tried. */
#ifndef MOED_READER_MODEL_READER_H
#define MOED_READER_MODEL_READER_H

#include "model/pool_plan.h"

struct read_model {
    struct gguf *gguf; /* files and tensors; no keys, no mapping */
    struct pool_plan plan;
    uint32_t file_type; /* gguf/file_type.h */
    bool fills;         /* it has tokens for fill-in-the-middle */
};

/* Opens path as gguf_open does. segment_bytes: as pool_plan_new_cut's. Waits for the process.
 * Errors are those of gguf_open, pool_plan_new and tokenizer_new. ERROR_FORMAT, too: the process
 * died of the file. ERROR_TIMEOUT: it used no CPU time for MODEL_READER_STALL_NS. The caller may
 * have other threads, and nng's sockets: the process closes their descriptors and calls nothing of
 * nng, and glibc's malloc works after a fork. */
#define MODEL_READER_STALL_NS                                                                      \
    300000000000ull /* a read of a disk that wakes takes some ten seconds */
enum error_code model_reader_read(const char *path, uint64_t segment_bytes, struct read_model *out,
                                  struct error *e);
/* The same for a list of models: the tokenizer is not tried, and the segments are the usual ones.
 * ERROR_FORMAT, too: the file takes more than MODEL_READER_BRIEF_S of CPU time. ERROR_TIMEOUT:
 * reading takes longer than until_ns (clock_ns); the next time the file is in memory. */
#define MODEL_READER_BRIEF_S 3
enum error_code model_reader_describe(const char *path, uint64_t until_ns, struct read_model *out,
                                      struct error *e);
void read_model_free(struct read_model *m); /* a zeroed one: no effect */

/* ---- The two sides, for tests ---- */

/* The message: this header, then struct gguf_tensor [parsed.tensor_count]. */
struct model_message {
    uint64_t magic;
    uint32_t code; /* enum error_code; beyond ERROR_OK only `text` follows */
    char text[ERROR_TEXT_BYTES];
    char arch[32];
    uint32_t file_type;
    uint32_t fills; /* 0: it has no tokens for it */
    struct gguf_parsed parsed;
    struct model_params params; /* arch: NULL */
};
#define MODEL_MESSAGE_MAGIC 0x6e6564656d646f6dull

/* The process's work: writes the message to fd. */
typedef void model_reader_work(struct gguf *unparsed, uint64_t segment_bytes, int fd);
model_reader_work model_reader_run, model_reader_run_brief;
/* model_reader_read with another work and limit. */
enum error_code model_reader_read_by(model_reader_work *work, const char *path,
                                     uint64_t segment_bytes, uint64_t stall_ns,
                                     struct read_model *out, struct error *e);
/* model_reader_describe with another work. */
enum error_code model_reader_describe_by(model_reader_work *work, const char *path,
                                         uint64_t until_ns, struct read_model *out,
                                         struct error *e);
/* Takes what it wrote, which may be anything: the header at the beginning of `message`, of `bytes`
 * bytes. Takes `unparsed`, also after an error. */
enum error_code model_reader_take(struct gguf *unparsed, const void *message, size_t bytes,
                                  uint64_t segment_bytes, struct read_model *out, struct error *e);

#endif
