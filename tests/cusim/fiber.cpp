/* Switches stacks, and notifies AddressSanitizer of each switch. ThreadSanitizer is not notified:
 * it counts accesses of fibers as accesses of the thread that runs them. Only its call stacks are
 * then wrong in reports about kernels. */
#include "fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif
enum { GUARD_BYTES = 4 << 10 };

#if defined(__x86_64__)
/* cusim_switch(void **save, void *to): pushes the registers that a call preserves, then changes the
 * stack. */
extern "C" void cusim_switch(void **save, void *to) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .p2align 4
    .globl cusim_switch
    .hidden cusim_switch
    .type cusim_switch, @function
cusim_switch:
    endbr64
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cusim_switch, .-cusim_switch
)");

void fiber_restart(struct fiber *f, void (*entry)())
{
    /* The stack as after a call of entry: at its first instruction rsp is 8 past a multiple of
     * 16. */
    uintptr_t *top = (uintptr_t *)((uintptr_t)(f->stack + f->stack_bytes) & ~(uintptr_t)15);
    *--top = 0;
    *--top = (uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--top = 0;
    f->context = top;
}

static void switch_context(struct fiber *from, struct fiber *to)
{
    cusim_switch(&from->context, to->context);
}
#else
#include <ucontext.h>

void fiber_restart(struct fiber *f, void (*entry)())
{
    if (f->context == nullptr)
        f->context = malloc(sizeof(ucontext_t));
    ucontext_t *c = (ucontext_t *)f->context;
    if (c == nullptr || getcontext(c) != 0)
        abort();
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = f->stack_bytes;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

static void switch_context(struct fiber *from, struct fiber *to)
{
    if (from->context == nullptr)
        from->context = malloc(sizeof(ucontext_t));
    if (from->context == nullptr ||
        swapcontext((ucontext_t *)from->context, (ucontext_t *)to->context) != 0)
        abort();
}
#endif

void fiber_init_thread(struct fiber *f)
{
    pthread_attr_t attributes;
    void *stack = nullptr;
    *f = {};
    if (pthread_getattr_np(pthread_self(), &attributes) != 0 ||
        pthread_attr_getstack(&attributes, &stack, &f->stack_bytes) != 0)
        abort();
    f->stack = (char *)stack;
    pthread_attr_destroy(&attributes);
}

void fiber_init(struct fiber *f, unsigned number, void (*entry)())
{
    char *memory = (char *)mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
        perror("cusim: stack of a thread");
        abort();
    }
    *f = {};
    f->stack = memory + GUARD_BYTES;
    f->stack_bytes =
        STACK_BYTES -
        (number % 15) * 256; /* else the frames of all stacks fall in the same sets of the cache */
    fiber_restart(f, entry);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
    switch_context(from, to);
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#else
    switch_context(from, to);
#endif
}

void fiber_entered()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}
