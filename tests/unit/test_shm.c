/* lib/ipc/shm: the kernel reports which seals a region has. */
#include "base/machine_memory.h"
#include "ipc/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#define BYTES 10000 /* not a multiple of a page */

static struct shm create(size_t bytes)
{
    struct shm s = {0};
    struct error e = {0};
    if (shm_create("moed-test", bytes, &s, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return s;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_create(void **state)
{
    struct shm s = create(BYTES);
    assert_int_equal(s.bytes, BYTES);
    assert_true(fcntl(s.fd, F_GETFD) & FD_CLOEXEC);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)s.base)[i], 0);
    memset(s.base, 7, BYTES);
    int fd = s.fd;
    shm_close(&s);
    assert_false(is_open(fd));
    assert_int_equal(s.fd, -1);
    assert_null(s.base);
    shm_close(&s);
    struct shm zeroed = {0};
    shm_close(&zeroed); /* must not close descriptor 0 */
    assert_true(is_open(0) || errno == EBADF);
}

/* Large memory: with any pages of this system it behaves as other memory, and is aligned to 2 MiB
 * here and in the receiving process. */
static void test_large(void **state)
{
    const size_t bytes = (5u << 20) + 100;
    struct shm s = {0}, r = {.fd = -1};
    struct error e = {0};
    enum shm_pages pages;
    if (shm_create_large("moed-test", bytes, &s, &pages, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    uint64_t page, reserved = memory_reserved_bytes(&page);
    if (pages == SHM_PAGES_RESERVED)
        assert_true(s.bytes >= bytes && s.bytes % page == 0);
    else
        assert_true(s.bytes == bytes);
    if (reserved == 0)
        assert_int_equal(pages == SHM_PAGES_TRANSPARENT, memory_huge_shared() != MEMORY_HUGE_NEVER);
    assert_int_equal((uintptr_t)s.base % (2u << 20), 0);
    uint8_t *at = s.base;
    for (size_t i = 0; i < s.bytes; i += 4096)
        assert_int_equal(at[i], 0);
    memset(at, 5, s.bytes);
    if (pages == SHM_PAGES_ORDINARY)
        assert_true(memory_huge_bytes(at) == 0);
    assert_true(memory_huge_bytes(at) <= s.bytes);

    assert_int_equal(ftruncate(s.fd, 0), -1);
    assert_int_equal(shm_seal_writes(&s, &e), ERROR_OK);
    assert_int_equal(shm_map(dup(s.fd), false, bytes, &r, &e), ERROR_OK);
    assert_int_equal((uintptr_t)r.base % (2u << 20), 0);
    assert_int_equal(r.bytes, s.bytes);
    assert_memory_equal(r.base, s.base, s.bytes);
    shm_close(&r);
    shm_close(&s);
    /* More than the machine has. */
    assert_int_equal(shm_create_large("moed-test", SIZE_MAX / 4, &s, &pages, &e), ERROR_MEMORY);
}

static void test_huge_choice(void **state)
{
    assert_int_equal(memory_huge_parse("always within_size advise [never] deny force\n"),
                     MEMORY_HUGE_NEVER);
    assert_int_equal(memory_huge_parse("always within_size advise never [deny] force\n"),
                     MEMORY_HUGE_NEVER);
    assert_int_equal(memory_huge_parse("always within_size [advise] never deny force\n"),
                     MEMORY_HUGE_ASKED);
    assert_int_equal(memory_huge_parse("always [within_size] advise never deny force\n"),
                     MEMORY_HUGE_ALWAYS);
    assert_int_equal(memory_huge_parse("[always] within_size advise never deny force\n"),
                     MEMORY_HUGE_ALWAYS);
    assert_int_equal(memory_huge_parse(""), MEMORY_HUGE_NEVER);
}

static void test_size_is_sealed(void **state)
{
    struct shm s = create(BYTES);
    assert_int_equal(ftruncate(s.fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(s.fd, 1 << 20), -1);
    assert_int_equal(errno, EPERM);
    shm_close(&s);
}

static void test_writes_are_sealed(void **state)
{
    struct shm s = create(BYTES);
    uint8_t *mine = s.base;
    mine[3] = 1;
    assert_int_equal(shm_seal_writes(&s, NULL), ERROR_OK);
    mine[3] = 2; /* the existing mapping stays writable */

    assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0), MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(pwrite(s.fd, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);

    struct shm w = {.fd = -1}, r = {.fd = -1};
    struct error e = {0};
    int fd = dup(s.fd);
    assert_int_equal(shm_map(fd, true, BYTES, &w, &e), ERROR_PROTOCOL);
    assert_false(is_open(fd));
    assert_null(w.base);
    assert_int_equal(shm_map(dup(s.fd), false, BYTES, &r, &e), ERROR_OK);
    assert_int_equal(((uint8_t *)r.base)[3], 2);
    assert_int_equal(mprotect(r.base, r.bytes, PROT_READ | PROT_WRITE), -1);
    shm_close(&r);
    shm_close(&s);
}

static void test_map_shares(void **state)
{
    struct shm a = create(BYTES), b = {0};
    assert_int_equal(shm_map(dup(a.fd), true, 1, &b, NULL), ERROR_OK);
    assert_int_equal(b.bytes, BYTES);
    assert_ptr_not_equal(a.base, b.base);
    ((uint8_t *)a.base)[BYTES - 1] = 42;
    assert_int_equal(((uint8_t *)b.base)[BYTES - 1], 42);
    shm_close(&a); /* the other mapping lives on */
    assert_int_equal(((uint8_t *)b.base)[BYTES - 1], 42);
    shm_close(&b);
}

static void refuse(int fd, size_t min_bytes)
{
    struct shm s = {.fd = -1};
    struct error e = {0};
    assert_int_equal(shm_map(fd, false, min_bytes, &s, &e), ERROR_PROTOCOL);
    assert_null(s.base);
    assert_int_not_equal(e.text[0], 0);
    if (fd >= 0)
        assert_false(is_open(fd));
}

static void test_map_refuses(void **state)
{
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    refuse(fd, 1);

    fd = memfd_create("grow-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    refuse(fd, 1);

    fd = memfd_create("unsealable", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    refuse(fd, 1);

    fd = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    refuse(fd, 0);

    struct shm s = create(BYTES);
    refuse(dup(s.fd), BYTES + 1);
    shm_close(&s);

    int ends[2];
    assert_int_equal(pipe(ends), 0);
    refuse(ends[0], 1);
    close(ends[1]);
    refuse(open("/dev/null", O_RDONLY | O_CLOEXEC), 1);
    refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 1);
    refuse(-1, 1);
}

static void test_too_much(void **state)
{
    struct shm s = {.fd = -1};
    struct error e = {0};
    assert_int_equal(shm_create("moed-huge", (size_t)1 << 50, &s, &e), ERROR_MEMORY);
    assert_non_null(strstr(e.text, "1125899906842624")); /* the bytes requested */
    unsigned long long needed = 0, available = 0;
    assert_int_equal(sscanf(e.text, "shared memory 'moed-huge' needs %llu bytes and %llu are free",
                            &needed, &available),
                     2);
    assert_true(available > 0 && available < (1ull << 50));
    assert_int_equal(shm_create("moed-none", 0, &s, &e), ERROR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_huge_choice),
        cmocka_unit_test(test_size_is_sealed),
        cmocka_unit_test(test_writes_are_sealed),
        cmocka_unit_test(test_map_shares),
        cmocka_unit_test(test_map_refuses),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
