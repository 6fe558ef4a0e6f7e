/* Streams: queues of operations, and their execution. Operations run one at a time: in a thread
 * that waits for one, else in the executor, a thread of its own.
 *
 * They run late, and in an order between streams that the seed chooses, so that missing
 * synchronisation shows.
 *
 * 1. An operation runs when it is the first of its stream, and all points that it waits for are
 *    reached.
 * 2. It does not run before a random delay has passed, unless a thread waits for something.
 * 3. Of the streams whose first operation can run, the one with the largest favour is served.
 *    Favours are random and change at random operations, so one stream may overtake another by far.
 * 4. A waiting thread wakes when its operation is done; other queued operations stay queued. */
#include "runtime.h"

#include "block.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <pthread.h>
#include <random>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <time.h>
#include <unistd.h>

/* Never destroyed: the executor may use them until the process is gone. */
std::mutex &state_lock = *new std::mutex;

namespace
{
std::condition_variable &state_changed = *new std::condition_variable;
std::condition_variable &work_added = *new std::condition_variable;
/* The default one first; destroyed ones until they are empty. */
std::vector<std::shared_ptr<CUstream_st>> &streams = *new std::vector<std::shared_ptr<CUstream_st>>;
std::map<CUstream_st *, std::shared_ptr<CUstream_st>> &handles =
    *new std::map<CUstream_st *, std::shared_ptr<CUstream_st>>;
unsigned n_waiting;
unsigned long long n_queued; /* operations of all streams */
bool under_way;              /* an operation runs */
bool executor_runs;
unsigned long long executor_wakes_ns;
thread_local bool doing_operation;
char operation_now[256]; /* for the message of a fault */

/* ---- faults ---- */

struct sigaction previous_fault[2];

void put(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

/* Prints where the fault happened, then lets the default action happen. */
void on_fault(int signal, siginfo_t *info, void *context)
{
    char text[512], where[256] = "host code", what[256];
    if (memory_describe(info->si_addr, what, sizeof what) || doing_operation) {
        if (doing_operation && !block_describe(where, sizeof where))
            snprintf(where, sizeof where, "%s", operation_now);
        snprintf(text, sizeof text, "cusim: bad access to %p (%s) in %s\n", info->si_addr, what,
                 where);
        put(text);
    }
    struct sigaction *previous = &previous_fault[signal == SIGBUS];
    if (previous->sa_flags & SA_SIGINFO)
        previous->sa_sigaction(signal, info, context);
    else
        sigaction(signal, previous, nullptr); /* the access is repeated, and ends the process */
}

void watch_faults()
{
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_fault[0]);
    sigaction(SIGBUS, &action, &previous_fault[1]);
}

/* ---- the executor ---- */

std::mt19937 &generator()
{
    static std::mt19937 &g = *new std::mt19937((unsigned)setting("MOED_CUSIM_SEED", 1));
    return g;
}

bool reached(const point &p)
{
    return p.first->n_done >= p.second;
}

bool can_run(const CUstream_st &s)
{
    if (s.queue.empty())
        return false;
    const operation &o = s.queue.front();
    return std::all_of(o.after.begin(), o.after.end(), reached) && (!o.ready || o.ready());
}

/* The stream to serve now; empty: none, and *next_ns is the time of the next check. */
std::shared_ptr<CUstream_st> choose(unsigned long long *next_ns)
{
    std::shared_ptr<CUstream_st> best;
    unsigned long long now = now_ns();
    *next_ns = now + 1000000000;
    for (const std::shared_ptr<CUstream_st> &s : streams) {
        if (!s->queue.empty() && s->queue.front().ready)
            *next_ns = std::min(*next_ns, now + 50000);
        if (!can_run(*s))
            continue;
        if (n_waiting == 0 && s->due_ns > now)
            *next_ns = std::min(*next_ns, s->due_ns);
        else if (!best || s->favour > best->favour)
            best = s;
    }
    return best;
}

/* The time at which the first operation of a queue may run, in nanoseconds: some time after it
 * arrived, rarely some time after the operation before it. */
void set_due(CUstream_st *s, bool was_idle)
{
    static const unsigned long long most = 1000 * setting("MOED_CUSIM_DELAY_US", 100);
    unsigned r = random_number();
    unsigned long long delay = r % 8 == 0 ? most * (r / 8 % 512) / 1024 : 0;
    s->due_ns = now_ns() + (was_idle ? most / 20 + most * (r % 1024) / 1024 : delay);
}

void run_first(std::unique_lock<std::mutex> &lock, const std::shared_ptr<CUstream_st> &s)
{
    operation o = std::move(s->queue.front());
    snprintf(operation_now, sizeof operation_now, "%s", o.name.c_str());
    under_way = true;
    memory_protect(false);
    lock.unlock();
    if (device_error() == cudaSuccess && o.run) {
        doing_operation = true;
        cudaError_t result = o.run();
        doing_operation = false;
        if (result != cudaSuccess)
            device_lost(result);
    }
    o = operation(); /* the operation may hold large buffers */
    lock.lock();
    under_way = false;
    s->queue.pop_front();
    s->n_done++;
    if (--n_queued == 0)
        memory_protect(true);
    set_due(s.get(), false);
    if (random_number() % 8 == 0)
        s->favour = random_number();
    state_changed.notify_all();
}

void remove_destroyed()
{
    for (size_t i = 1; i < streams.size();)
        if (streams[i]->queue.empty() && handles.count(streams[i].get()) == 0)
            streams.erase(streams.begin() + (ptrdiff_t)i);
        else
            i++;
}

void execute()
{
    std::unique_lock<std::mutex> lock(state_lock);
    pthread_setname_np(pthread_self(), "cusim");
    for (;;) {
        unsigned long long next_ns = now_ns() + 1000000000;
        std::shared_ptr<CUstream_st> s;
        if (n_waiting == 0 && !under_way)
            s = choose(&next_ns);
        if (s) {
            run_first(lock, s);
            continue;
        }
        remove_destroyed();
        executor_wakes_ns = next_ns;
        work_added.wait_for(lock, std::chrono::nanoseconds(next_ns - now_ns()));
        executor_wakes_ns = 0;
    }
}

void start_executor()
{
    if (executor_runs)
        return;
    executor_wakes_ns = 0;
    executor_runs = true;
    sigset_t all, old;
    sigfillset(&all);
    for (int s : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL})
        sigdelset(&all, s);
    watch_faults();
    pthread_sigmask(SIG_SETMASK, &all, &old);
    std::thread(execute).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

std::shared_ptr<CUstream_st> new_stream(bool blocking, int priority)
{
    std::shared_ptr<CUstream_st> s = std::make_shared<CUstream_st>();
    s->blocking = blocking;
    s->device = current_device();
    s->priority = priority;
    s->n_enqueued = s->n_done = s->due_ns = 0;
    s->favour = random_number();
    s->capture_origin = false;
    streams.push_back(s);
    return s;
}

std::shared_ptr<CUstream_st> default_stream()
{
    if (streams.empty())
        new_stream(false, 0);
    return streams.front();
}

/* The default stream runs after all earlier operations of blocking streams, and these run after its
 * earlier operations. */
void order_with_default(const std::shared_ptr<CUstream_st> &s, operation *o)
{
    std::shared_ptr<CUstream_st> main = default_stream();
    if (s != main) {
        if (s->blocking && main->n_done < main->n_enqueued)
            o->after.emplace_back(main, main->n_enqueued);
        return;
    }
    for (const std::shared_ptr<CUstream_st> &other : streams)
        if (other->blocking && other->n_done < other->n_enqueued)
            o->after.emplace_back(other, other->n_enqueued);
}
} // namespace

unsigned long long now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

unsigned random_number()
{
    return (unsigned)generator()();
}

bool in_operation()
{
    return doing_operation;
}

std::shared_ptr<CUstream_st> stream_find(cudaStream_t stream)
{
    if (stream == nullptr || stream == cudaStreamLegacy)
        return default_stream();
    auto found = handles.find(stream);
    return found == handles.end() ? nullptr : found->second;
}

point stream_append(const std::shared_ptr<CUstream_st> &s, operation o)
{
    if (s->capture) {
        s->capture->operations.push_back(std::move(o));
        return point(s, 0);
    }
    start_executor();
    order_with_default(s, &o);
    if (s->queue.empty())
        set_due(s.get(), true);
    s->queue.push_back(std::move(o));
    n_queued++;
    if (s->due_ns < executor_wakes_ns)
        work_added.notify_one();
    return point(s, ++s->n_enqueued);
}

/* The waiting thread runs the operations: on a loaded machine waking another thread takes longer
 * than most operations. */
cudaError_t stream_wait_for(std::unique_lock<std::mutex> &lock, const point &p)
{
    n_waiting++;
    while (!reached(p)) {
        unsigned long long next_ns = now_ns() + 1000000000;
        std::shared_ptr<CUstream_st> s;
        if (!under_way)
            s = choose(&next_ns);
        if (s)
            run_first(lock, s);
        else
            state_changed.wait_for(lock, std::chrono::nanoseconds(next_ns - now_ns()));
    }
    if (--n_waiting > 0)
        state_changed.notify_all(); /* another waiting thread continues */
    else if (n_queued > 0)
        work_added.notify_one();
    return device_error();
}

cudaError_t stream_wait_for_all(std::unique_lock<std::mutex> &lock)
{
    std::vector<point> ends;
    for (const std::shared_ptr<CUstream_st> &s : streams)
        ends.emplace_back(s, s->n_enqueued);
    for (const point &p : ends)
        stream_wait_for(lock, p);
    return device_error();
}

void stream_leave_capture(std::shared_ptr<graph_content> capture)
{
    for (const std::shared_ptr<CUstream_st> &s : streams)
        if (s->capture == capture) {
            s->capture = nullptr;
            s->capture_origin = false;
        }
}

cudaError_t enqueue(cudaStream_t stream, operation o)
{
    std::lock_guard<std::mutex> guard(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    stream_append(s, std::move(o));
    return cudaSuccess;
}

extern "C" {
cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    CALL("cudaStreamCreateWithPriority");
    if (stream == nullptr || (flags & ~(unsigned)cudaStreamNonBlocking) != 0)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    default_stream(); /* the first of the list */
    std::shared_ptr<CUstream_st> s = new_stream(!(flags & cudaStreamNonBlocking), priority);
    handles[s.get()] = s;
    *stream = s.get();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    CALL("cudaStreamDestroy");
    std::lock_guard<std::mutex> guard(state_lock);
    return call_end(handles.erase(stream) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    CALL("cudaStreamSynchronize");
    std::unique_lock<std::mutex> lock(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return call_end(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return call_end(cudaErrorStreamCaptureUnsupported);
    return call_end(stream_wait_for(lock, point(s, s->n_enqueued)));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    CALL("cudaStreamQuery");
    std::lock_guard<std::mutex> guard(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return call_end(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return call_end(cudaErrorStreamCaptureUnsupported);
    return call_end(s->n_done < s->n_enqueued ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize(void)
{
    CALL("cudaDeviceSynchronize");
    std::unique_lock<std::mutex> lock(state_lock);
    return call_end(stream_wait_for_all(lock));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user_data)
{
    CALL("cudaLaunchHostFunc");
    if (function == nullptr)
        return call_end(cudaErrorInvalidValue);
    return call_end(enqueue(stream, {"a host function",
                                     [=] {
                                         function(user_data);
                                         return cudaSuccess;
                                     },
                                     {},
                                     {}}));
}
}
