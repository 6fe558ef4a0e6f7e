/* lib/base/cgroup_memory.h with made-up trees of files, as the kernel's documentation has them. */
#include "base/cgroup_memory.h"

#include "file_tree.h"

#define V2 "sys/fs/cgroup/"
#define V1 "sys/fs/cgroup/memory/"

static void without_groups(void **state)
{
    assert_int_equal(cgroup_memory_available(root), UINT64_MAX);
    put("proc/self/cgroup", "0::/");
    assert_int_equal(cgroup_memory_available(root), UINT64_MAX);
}

static void second_version(void **state)
{
    put("proc/self/cgroup", "0::/user/session");
    put(V2 "user/session/memory.max", "max");
    put(V2 "user/session/memory.current", "500");
    assert_int_equal(cgroup_memory_available(root), UINT64_MAX);
    put(V2 "user/memory.max", "3000"); /* the group above has the limit */
    put(V2 "user/memory.current", "1200");
    assert_int_equal(cgroup_memory_available(root), 1800);
    put(V2 "user/memory.stat", "anon 700\nfile 500\ninactive_file 100\nactive_file 150");
    assert_int_equal(cgroup_memory_available(root), 2050);
    put(V2 "user/session/memory.max", "400");
    assert_int_equal(cgroup_memory_available(root), 0);
}

static void first_version(void **state)
{
    put("proc/self/cgroup", "5:cpu,cpuacct:/elsewhere\n4:hugetlb,memory:/docker/abc\n0::/");
    put(V1 "docker/abc/memory.limit_in_bytes", "10000");
    put(V1 "docker/abc/memory.usage_in_bytes", "4000");
    put(V1 "docker/abc/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"
                                     "total_active_file 500");
    put(V1 "memory.limit_in_bytes", "9223372036854771712");
    put(V1 "memory.usage_in_bytes", "77");
    assert_int_equal(cgroup_memory_available(root), 7000);
}

/* In a container the path is the host's, but its group is the root of the mount. */
static void container_of_the_first_version(void **state)
{
    put("proc/self/cgroup", "4:memory:/docker/abc");
    put(V1 "memory.limit_in_bytes", "10000");
    put(V1 "memory.usage_in_bytes", "4000");
    assert_int_equal(cgroup_memory_available(root), 6000);
}

/* A promise counts in the limits of the groups that its process lies in. */
static void promises_of_others(void **state)
{
    static const struct cgroup_promise all[] = {{71, 100}, {72, 30}, {73, 5}, {74, 1}};
    (void)state;
    put("proc/self/cgroup", "0::/a/b");
    put(V2 "a/b/memory.max", "1000");
    put(V2 "a/b/memory.current", "0");
    put("proc/71/cgroup", "0::/a/bc");
    put("proc/72/cgroup", "0::/a/b/c");
    put("proc/73/cgroup", "0::/a/b");
    assert_int_equal(cgroup_memory_unpromised(root, all, 3), 1000 - 35);
    assert_int_equal(cgroup_memory_unpromised(root, all, 4), 1000 - 36); /* 74 is not known */
    put(V2 "a/memory.max", "1050");
    put(V2 "a/memory.current", "0");
    assert_int_equal(cgroup_memory_unpromised(root, all, 3), 1050 - 135);
    put(V2 "a/memory.max", "90");
    assert_int_equal(cgroup_memory_unpromised(root, all, 3), 0);
    assert_int_equal(cgroup_memory_available(root), 90);
}

/* This process is at the root of a cgroup namespace: paths of groups outside lead upwards. */
static void promises_outside_of_the_namespace(void **state)
{
    static const struct cgroup_promise all[] = {{71, 100}, {72, 30}, {73, 5}, {74, 1}};
    (void)state;
    put("proc/self/cgroup", "0::/");
    put(V2 "memory.max", "1000");
    put(V2 "memory.current", "0");
    put("proc/71/cgroup", "0::/../other");
    put("proc/72/cgroup", "0::/..");
    put("proc/73/cgroup", "0::/a");
    put("proc/74/cgroup", "0::/..a");
    assert_int_equal(cgroup_memory_unpromised(root, all, 4), 1000 - 6);
}

static void promises_of_the_first_version(void **state)
{
    static const struct cgroup_promise all[] = {{71, 100}, {72, 30}};
    (void)state;
    put("proc/self/cgroup", "4:memory:/m\n0::/");
    put(V1 "m/memory.limit_in_bytes", "1000");
    put(V1 "m/memory.usage_in_bytes", "0");
    put("proc/71/cgroup", "4:memory:/\n0::/");
    put("proc/72/cgroup", "4:memory:/m\n0::/");
    assert_int_equal(cgroup_memory_unpromised(root, all, 2), 1000 - 30);
}

static void oom_kills(void **state)
{
    assert_int_equal(cgroup_memory_oom_kills(root), 0);
    put("proc/vmstat", "nr_free_pages 9\noom_kill 12\n");
    assert_int_equal(cgroup_memory_oom_kills(root), 12);
    put("proc/self/cgroup", "4:memory:/docker/abc\n0::/user");
    assert_int_equal(cgroup_memory_oom_kills(root), 12);
    put(V2 "user/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
    assert_int_equal(cgroup_memory_oom_kills(root), 2);
    put(V1 "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
    assert_int_equal(cgroup_memory_oom_kills(root), 7); /* in a container: the mount's root */
    put(V1 "docker/abc/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    assert_int_equal(cgroup_memory_oom_kills(root), 1);
}

/* A kill belongs to an end soon after it, and to one end. */
static void claims(void **state)
{
    struct cgroup_oom_kills k = {0};
    const uint64_t second = 1000000000, start = 3600 * second;
    (void)state;
    put("proc/vmstat", "oom_kill 12\n");
    assert_false(cgroup_oom_kills_claim(&k, root, start)); /* before the first look */
    put("proc/vmstat", "oom_kill 13\n");
    cgroup_oom_kills_look(&k, root, start + second);
    cgroup_oom_kills_look(&k, root, start + 2 * second);
    assert_true(cgroup_oom_kills_claim(&k, root, start + 3 * second));
    assert_false(cgroup_oom_kills_claim(&k, root, start + 3 * second));
    put("proc/vmstat", "oom_kill 14\n");
    cgroup_oom_kills_look(&k, root, start + 4 * second);
    assert_false(cgroup_oom_kills_claim(&k, root, start + 60 * second)); /* of another program */
    put("proc/vmstat", "oom_kill 16\n");
    assert_true(cgroup_oom_kills_claim(&k, root, start + 61 * second));
    assert_true(cgroup_oom_kills_claim(&k, root, start + 61 * second));
    assert_false(cgroup_oom_kills_claim(&k, root, start + 61 * second));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(without_groups),
                                       TEST(second_version),
                                       TEST(first_version),
                                       TEST(container_of_the_first_version),
                                       TEST(promises_of_others),
                                       TEST(promises_outside_of_the_namespace),
                                       TEST(promises_of_the_first_version),
                                       TEST(oom_kills),
                                       TEST(claims)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
