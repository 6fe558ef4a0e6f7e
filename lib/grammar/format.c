/* The formats of JSON Schema as regular expressions. Where a format has limits of length that an
 * expression cannot hold, the expression allows less: docs/structured-output.md says what. */
#include "grammar/leaf.h"

#include <string.h>

/* RFC 3339, with real days of months and without leap seconds. Not the year 0000, which Python's
 * dates do not have. */
#define YEAR "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define LEAP "(?:0[48]|[2468][048]|[13579][26])" /* the multiples of 4 but 0, of two digits */
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"                                \
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"                          \
    "(?:[0-9]{2}" LEAP "|" LEAP "00)-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME  CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" CLOCK ")"

/* RFC 1123; at most 3 labels of 63 characters or 6 of 41: they stay below 253. */
#define LABEL      "[A-Za-z0-9](?:[A-Za-z0-9-]{0,39}[A-Za-z0-9])?"
#define LONG_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOSTNAME   "(?:" LABEL "(?:\\." LABEL "){0,5}|" LONG_LABEL "(?:\\." LONG_LABEL "){0,2})"
/* RFC 5321, a dot-string of at most three words of 20 characters */
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define EMAIL ATOM "(?:\\." ATOM "){0,2}@" LABEL "(?:\\." LABEL "){0,3}"

/* RFC 2673 and 4291, without an embedded IPv4 address */
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H16   "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,7}:|(?:" H16 ":){1,6}:" H16 "|(?:" H16               \
    ":){1,5}(?::" H16 "){1,2}|(?:" H16 ":){1,4}(?::" H16 "){1,3}|(?:" H16 ":){1,3}(?::" H16        \
    "){1,4}|(?:" H16 ":){1,2}(?::" H16 "){1,5}|" H16 ":(?::" H16 "){1,6}|:(?:(?::" H16             \
    "){1,7}|:))"

/* RFC 3986 */
#define UNRESERVED "A-Za-z0-9._~\\-"
#define SUB_DELIMS "!$&'()*+,;="
#define PERCENT    "%[0-9A-Fa-f]{2}"
#define PCHAR      "(?:[" UNRESERVED SUB_DELIMS ":@]|" PERCENT ")"
#define AUTHORITY                                                                                  \
    "(?:(?:[" UNRESERVED SUB_DELIMS ":]|" PERCENT ")*@)?(?:\\[" IPV6                               \
    "\\]|(?:[" UNRESERVED SUB_DELIMS "]|" PERCENT ")*)(?::[0-9]*)?"
#define ABSOLUTE "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define QUERY    "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI                                                                                        \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY "(?:/" PCHAR "*)*|" ABSOLUTE "|" PCHAR "+(?:/" PCHAR \
    "*)*)?" QUERY
#define RELATIVE                                                                                   \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|" ABSOLUTE "|(?:[" UNRESERVED SUB_DELIMS "@]|" PERCENT     \
    ")+(?:/" PCHAR "*)*)?" QUERY

#define POINTER "(?:/(?:[^~/]|~[01])*)*"
/* ISO 8601, as appendix A of RFC 3339 has it; a number without a limit could be endless. Python's
 * timedelta takes less than 1e9 days, and Pydantic hours and minutes of less than 2^32 s. */
#define NUMBER   "[0-9]{1,6}"
#define LONGER   "[0-9]{1,8}"
#define SECONDS  LONGER "S"
#define MINUTES  NUMBER "M(?:" SECONDS ")?"
#define HOURS    NUMBER "H(?:" MINUTES ")?"
#define OF_DAY   "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define DAYS     LONGER "D"
#define MONTHS   NUMBER "M(?:" DAYS ")?"
#define YEARS    NUMBER "Y(?:" MONTHS ")?"
#define WEEKS    NUMBER "W"
#define DURATION "P(?:(?:" DAYS "|" MONTHS "|" YEARS ")(?:" OF_DAY ")?|" OF_DAY "|" WEEKS ")"

static const struct {
    const char *name, *expression;
} formats[] = {
    {"date", "^(?:" DATE ")$"},
    {"time", "^(?:" TIME ")$"},
    {"date-time", "^(?:" DATE ")T(?:" TIME ")$"},
    {"duration", "^(?:" DURATION ")$"},
    {"uuid", "^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    {"email", "^(?:" EMAIL ")$"},
    {"hostname", "^(?:" HOSTNAME ")$"},
    {"ipv4", "^(?:" IPV4 ")$"},
    {"ipv6", "^" IPV6 "$"},
    {"uri", "^(?:" URI ")$"},
    {"uri-reference", "^(?:(?:" URI ")|(?:" RELATIVE "))$"},
    {"json-pointer", "^" POINTER "$"},
    {"relative-json-pointer", "^(?:0|[1-9][0-9]*)(?:#|" POINTER ")$"},
};

const char *format_expression(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].expression;
    return NULL;
}
