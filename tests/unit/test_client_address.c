/* client/http/server/client_address.c: which proxies are trusted, and whose request it is behind
 * them. */
#include "client/http/server/client_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

/* NULL: a unix socket. */
static struct client_address peer_of(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (text && inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return client_address_of((struct sockaddr *)&v4);
    if (text && inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        return client_address_of((struct sockaddr *)&v6);
    assert_null(text);
    return client_address_of(NULL);
}

/* The client of a request of `peer` with this X-Forwarded-For. */
static void expect(const char *proxies, const char *peer, const char *forwarded, const char *client)
{
    struct trusted_proxies t = {0};
    struct error e;
    char text[CLIENT_ADDRESS_BYTES];
    struct client_address c = peer_of(peer);
    if (proxies)
        assert_int_equal(trusted_proxies_parse(proxies, &t, &e), ERROR_OK);
    c = client_address_find(&c, &t, forwarded);
    client_address_text(&c, text);
    assert_string_equal(text, client);
    trusted_proxies_free(&t);
}

static void test_clients(void **state)
{
    (void)state;
    expect(NULL, "10.0.0.1", "192.0.2.7", "10.0.0.1"); /* nobody is trusted */
    expect("10.0.0.0/8", "11.0.0.1", "192.0.2.7", "11.0.0.1");
    expect("10.0.0.0/8", "10.9.8.7", NULL, "10.9.8.7");
    expect("10.0.0.0/8", "10.9.8.7", "192.0.2.7", "192.0.2.7");
    expect("10.0.0.0/8", "10.9.8.7", "1.2.3.4, 192.0.2.7",
           "192.0.2.7"); /* the client wrote 1.2.3.4 */
    expect("10.0.0.0/8", "10.9.8.7", "1.2.3.4, 192.0.2.7 ,10.0.0.2", "192.0.2.7"); /* two proxies */
    expect("10.0.0.0/8", "10.9.8.7", "10.0.0.3,10.0.0.2", "10.0.0.3");
    expect("10.0.0.0/8", "10.9.8.7", "1.2.3.4, unknown", "10.9.8.7");
    expect("10.0.0.0/8", "10.9.8.7", "1.2.3.4,", "10.9.8.7");
    expect("10.0.0.0/8", "::ffff:10.9.8.7", "192.0.2.7:4711", "192.0.2.7");
    expect("fd00::/8,10.0.0.1", "fd12::1", "[2001:db8::5]:80", "2001:db8::5");
    expect("fd00::/8,10.0.0.1", "10.0.0.1", "2001:db8::5", "2001:db8::5");
    expect("fd00::/8,10.0.0.1", "10.0.0.2", "2001:db8::5", "10.0.0.2");
    expect("10.0.0.0/9", "10.128.0.1", "192.0.2.7", "10.128.0.1");
    expect("10.0.0.0/9", "10.127.0.1", "192.0.2.7", "192.0.2.7");
    expect("0.0.0.0/0", "10.127.0.1", "192.0.2.7", "192.0.2.7");
    expect("::ffff:10.0.0.0/104", "10.9.8.7", "192.0.2.7", "192.0.2.7");
    expect("::ffff:10.0.0.0/104", "11.9.8.7", "192.0.2.7", "11.9.8.7");
    expect("::/0", "10.127.0.1", "192.0.2.7", "192.0.2.7");
    expect("10.1.2.3/32", "10.1.2.2", "192.0.2.7", "10.1.2.2");
    expect("fd00::1/128", "fd00::2", "192.0.2.7", "fd00::2");
    expect("fd00::1/128", "fd00::1", "192.0.2.7", "192.0.2.7");
    expect(NULL, NULL, "192.0.2.7", "");
    expect("10.0.0.0/8", NULL, "192.0.2.7", "");
    expect("unix", NULL, "192.0.2.7", "192.0.2.7");
    expect("unix", "10.0.0.1", "192.0.2.7", "10.0.0.1");
}

static void test_wrong_lists(void **state)
{
    static const char *const wrong[] = {
        "10.0.0.0/33", "10.0.0/8",        "fd00::/129",  "10.0.0.0/",   "a",
        ",",           "10.0.0.0/8,,::1", "10.0.0.0/8x", "10.0.0.0/-1", "::ffff:10.0.0.0/8"};
    struct trusted_proxies t;
    struct error e;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(trusted_proxies_parse(wrong[i], &t, &e), ERROR_USAGE);
    assert_int_equal(trusted_proxies_parse("", &t, &e), ERROR_OK);
    trusted_proxies_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients),
                                       cmocka_unit_test(test_wrong_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
