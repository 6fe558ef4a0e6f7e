/* The models of a folder and what becomes of them: which deployments run, which are wanted, what to
 * do next. decide.h decides; this module looks at the machine and runs `moed up` and `moed down`.
 *
 *   control thread  --(models_list, models_want, models_drop)-->  struct models  <--(models_turn)--
 * main
 *
 * `lock` guards everything but the catalogue, which is the control thread's. models_turn calls
 * other processes without it, and the control thread reads model files without it.
 *
 * A deployment that was started here is an own one, also for the next moed-models:
 * RUN/models.started (daemon/models_started.h) has its name. Others are shown, and left alone. */
#ifndef MOED_DEPLOY_MODELS_H
#define MOED_DEPLOY_MODELS_H

#include "daemon/run_dir.h"
#include "deploy/models/catalogue.h"
#include "deploy/models/child.h"
#include "deploy/models/decide.h"
#include "metrics/metrics.h"

#include "control.pb-c.h"

#include <limits.h>
#include <pthread.h>

struct models_settings {
    const char *folder;
    double keep_s; /* below 0: for ever */
    uint64_t most;
    uint64_t budget_bytes; /* UINT64_MAX: no limit */
};

struct model {
    struct model_facts facts;
    char id[CATALOGUE_ID_BYTES], deployment[CATALOGUE_NAME_BYTES];
    bool kv_given;                     /* its options say --kv-cache */
    bool listed;                       /* the catalogue has it; else only its deployment is left */
    char served[CATALOGUE_NAME_BYTES]; /* another deployment that has its file; empty: none */
    char *path;                        /* owned: of its file; NULL: no memory, or not listed yet */
    /* of its file and of its options, as the last scan found them */
    struct catalogue_version version;
    struct timespec options_modified;
    char reason[512];      /* MODEL_FAILED */
    uint64_t tokens_total; /* of its workers, when it was last looked at */
};

/* A deployment that runs and is none of the folder's: the front's own, or a person's. */
struct other_deployment {
    char name[CATALOGUE_NAME_BYTES];
    char model[PATH_MAX];
};
enum { OTHER_DEPLOYMENTS = 64 };

struct models {
    const struct models_settings *settings;
    pthread_mutex_t lock;
    struct catalogue catalogue; /* the control thread's, and models_init's before it starts */
    size_t listed;              /* models in it */
    struct model *items[2 * CATALOGUE_MOST]; /* owned */
    size_t count;
    struct other_deployment *others; /* owned, [OTHER_DEPLOYMENTS]; as of the last look */
    size_t n_others;
    struct child child;   /* `moed up` or `moed down` */
    struct model *moving; /* the model that it moves; NULL: none */
    bool stopping;
    char moed[PATH_MAX];          /* the program */
    char nothing[PATH_MAX + 128]; /* why the list is empty */
    char run[RUN_DIR_BYTES];
    char defaults[RUN_PATH_BYTES]; /* the file with the folder's options; empty: there is none */
    int wake_fd;                   /* an eventfd: a turn is due */
    uint64_t looked_ns;
    struct counter *loads, *unloads, *failures;
    struct gauge *available, *up;
};

/* Finds the program, scans the folder, adopts what an earlier process started. Borrows settings. */
enum error_code models_init(struct models *m, const struct models_settings *settings,
                            const char *run, struct metrics *metrics, struct error *e);
void models_fini(struct models *m);

/* Requests, on the control thread. The reply's entries are valid until the next call. */
enum error_code models_request(struct models *m, const Moed__V1__ModelsRequest *q,
                               Moed__V1__ModelsReply *reply, struct error *e);

/* One turn of the main thread: looks, decides, acts. Returns after how many ms the next is due. */
int models_turn(struct models *m);
/* Stops every own deployment, and waits for their end. RUN/models.started then has those that are
 * left. */
void models_stop_all(struct models *m);

#endif
