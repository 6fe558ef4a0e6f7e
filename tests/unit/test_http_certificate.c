/* A certificate that cannot be used: the server closes its socket once, also where libmicrohttpd
 * has closed it, and another thread has its number by then. */
#include "client/http/server/server.h"
#include "client/http/text_file.h"
#include "temporary_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

static int listening = -1;
static bool taken; /* its number, by another thread */

/* libmicrohttpd's and the server's. */
__attribute__((visibility("default"))) int close(int fd)
{
    int result = (int)syscall(SYS_close, fd);
    if (result == 0 && fd == listening && !taken) {
        int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        taken = true;
        if (other != fd) {
            dup2(other, fd);
            syscall(SYS_close, other);
        }
    }
    return result;
}

static void make_pair(const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=%s -keyout %s/%s.key "
             "-out %s/%s.crt > /dev/null 2>&1",
             name, directory, name, directory, name);
    if (system(command) != 0)
        skip();
}

static void test_another_key(void **state)
{
    static const struct server_settings settings = {
        .connections = 4, .idle_timeout_s = 10, .header_timeout_s = 10};
    struct loop loop;
    struct server s = {.loop = &loop, .settings = &settings};
    struct error e = {0};
    make_pair("one");
    make_pair("two");
    struct certificate c = {text_file_read(in_directory("one.crt"), &e),
                            text_file_read(in_directory("two.key"), &e)};
    assert_true(c.chain && c.key);
    assert_int_equal(loop_init(&loop, &e), ERROR_OK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(listen(fd, 1), 0);
    listening = fd;
    assert_int_not_equal(server_listen(&s, fd, &c, &e), ERROR_OK);
    listening = -1;
    assert_null(c.chain);
    assert_non_null(strstr(e.text, "check the certificate and its key"));
    assert_true(taken);                           /* the socket was closed */
    assert_int_not_equal(fcntl(fd, F_GETFD), -1); /* and nothing else */
    close(fd);
    loop_fini(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_another_key)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
