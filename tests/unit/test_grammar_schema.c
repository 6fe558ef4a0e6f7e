/* JSON schemas: each supported keyword with texts worked by hand from the specification (2020-12),
 * and refusals with their JSON pointers. tests/grammar compares with other implementations. */
#include "grammar/schema_loosen.h"
#include "grammar_texts.h"

#define SCHEMA(definition, ...)         CHECK_TEXTS(GRAMMAR_JSON_SCHEMA, definition, __VA_ARGS__)
#define REFUSED(definition, code, part) check_refused(GRAMMAR_JSON_SCHEMA, definition, code, part)

/* Keywords that cannot be followed are left out wherever subschemas stand, and nowhere else. */
static void test_loosen(void **state)
{
    static const struct {
        const char *schema, *loosened, *keyword;
        unsigned removed;
    } cases[] = {
        {"{\"type\":\"object\",\"required\":[\"a\"]}", NULL, "", 0},
        {"{\"properties\":{\"pattern\":{\"type\":\"string\",\"pattern\":\"^(?!a)\","
         "\"format\":\"email\"},\"not\":true}}",
         "{\"properties\":{\"pattern\":{\"type\":\"string\",\"format\":\"email\"},\"not\":true}}",
         "pattern", 1},
        {"{\"items\":{\"format\":\"password\"},\"uniqueItems\":true,\"x-a\":{\"not\":1}}",
         "{\"items\":{},\"x-a\":{\"not\":1}}", "uniqueItems", 2},
        {"{\"$id\":\"u\",\"oneOf\":[{\"$id\":\"v\"},{\"enum\":[{\"not\":1}]}]}",
         "{\"$id\":\"u\",\"anyOf\":[{},{\"enum\":[{\"not\":1}]}]}", "$id", 1},
        {"{\"oneOf\":[true],\"anyOf\":[false],\"patternProperties\":{\"(?=a)\":{},\"b\":{}}}",
         "{\"allOf\":[{\"anyOf\":[true]}],\"anyOf\":[false],\"patternProperties\":{\"b\":{}}}",
         "(?=a)", 1},
        {"{\"$ref\":\"#/$defs/a/oneOf/1\",\"$defs\":{\"a\":{\"oneOf\":[{},{\"$ref\":\"http://"
         "b\"}]}}}",
         "{\"$ref\":\"#/$defs/a/anyOf/1\",\"$defs\":{\"a\":{\"anyOf\":[{},{}]}}}", "$ref", 1},
        {"{\"items\":{\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083},\"maxLength\":9}",
         NULL, "", 0},
        {"{\"items\":{\"pattern\":\"^(a|b)*a(a|b){10}$\",\"maxLength\":900,\"minLength\":2}}",
         "{\"items\":{\"pattern\":\"^(a|b)*a(a|b){10}$\",\"minLength\":2}}", "maxLength", 1},
        {"{\"items\":{\"pattern\":\"(a|b)*a(a|b){13}\",\"format\":\"uri\",\"minLength\":2}}",
         "{\"items\":{\"format\":\"uri\"}}", "minLength", 2},
        {"true", NULL, "", 0},
        /* older drafts, OpenAPI and Google's SDKs */
        {"{\"items\":[{\"items\":[true]},{}],\"additionalItems\":false}",
         "{\"prefixItems\":[{\"prefixItems\":[true]},{}],\"items\":false}", "", 0},
        {"{\"items\":{\"type\":\"null\"},\"additionalItems\":false}",
         "{\"items\":{\"type\":\"null\"}}", "", 0},
        {"{\"minimum\":1,\"exclusiveMinimum\":true,\"maximum\":5,\"exclusiveMaximum\":false}",
         "{\"exclusiveMinimum\":1,\"maximum\":5}", "", 0},
        {"{\"type\":\"OBJECT\",\"required\":null,\"enum\":null,\"additionalProperties\":null,"
         "\"items\":null,\"properties\":{\"a\":{\"type\":[\"STRING\",\"null\"],"
         "\"properties\":null,\"const\":null},\"b\":{\"type\":\"any\"},"
         "\"c\":{\"type\":\"ARRAY\",\"minItems\":\"2\"}}}",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"],"
         "\"const\":null},\"b\":{},\"c\":{\"type\":\"array\",\"minItems\":2}}}",
         "", 0},
        /* null where the type, or what stands for it, excludes it */
        {"{\"type\":\"integer\",\"nullable\":true}", NULL, "", 0},
        {"{\"$defs\":{\"a\":{}},\"$ref\":\"#/$defs/a\",\"title\":\"t\",\"nullable\":true}",
         "{\"$defs\":{\"a\":{}},\"anyOf\":[{\"$ref\":\"#/$defs/a\",\"title\":\"t\"},"
         "{\"type\":\"null\"}]}",
         "", 0},
        {"{\"minimum\":1,\"nullable\":true}", "{\"minimum\":1}", "", 0},
        /* what a reference names is kept */
        {"{\"items\":{\"$ref\":\"#/components/schemas/a~1b\"},\"components\":{\"schemas\":{"
         "\"a/b\":{\"not\":{},\"items\":{\"$ref\":\"#/components/schemas/a~1b\"}}}}}",
         "{\"items\":{\"$ref\":\"#/$defs/definition-1\"},\"$defs\":{\"definition-1\":{"
         "\"items\":{\"$ref\":\"#/$defs/definition-1\"}}}}",
         "components", 2},
        {"{\"prefixItems\":[{\"$ref\":\"#/items/1\"}],\"items\":{\"items\":[{},"
         "{\"$ref\":\"#/items/items/0\"}]}}",
         "{\"prefixItems\":[{}],\"items\":{\"prefixItems\":[{},"
         "{\"$ref\":\"#/items/prefixItems/0\"}]}}",
         "$ref", 1},
        {"{\"$ref\":\"#/$defs/a\"}", "{}", "$ref", 1},
        /* what is malformed */
        {"{\"type\":\"dict\",\"anyOf\":[],\"required\":[\"a\",1],\"properties\":{\"a\":3,"
         "\"b\":{\"required\":true,\"minLength\":-1}}}",
         "{\"required\":[\"a\"],\"properties\":{\"a\":true,\"b\":{}}}", "type", 6},
        /* the keyword that others make impossible, and what would say more without it */
        {"{\"minProperties\":3,\"required\":[\"a\"]}", "{\"minProperties\":1,\"required\":[\"a\"]}",
         "minProperties", 1},
        {"{\"patternProperties\":{\"a\":true,\"b\":true,\"c\":true,\"d\":true,\"e\":true},"
         "\"additionalProperties\":false}",
         "{\"patternProperties\":{\"a\":true,\"b\":true,\"c\":true,\"d\":true}}",
         "patternProperties", 1},
        {"{\"patternProperties\":{\"(?=a)\":true,\"b\":true},\"additionalProperties\":false}",
         "{\"patternProperties\":{\"b\":true}}", "(?=a)", 1},
        {"{\"enum\":[{\"a\":1}],\"type\":\"object\",\"properties\":{\"a\":{}}}",
         "{\"enum\":[{\"a\":1}],\"type\":\"object\"}", "properties", 1},
        {"{\"allOf\":[{\"const\":[1]},{\"minItems\":1,\"maxItems\":4}]}",
         "{\"allOf\":[{\"const\":[1]},{}]}", "minItems", 2},
        {"{\"type\":\"number\",\"multipleOf\":1e-30}", "{\"type\":\"number\"}", "multipleOf", 1},
        {"{\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"},{\"const\":\"b\"}]}}",
         "{\"propertyNames\":{}}", "anyOf", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *expected = cases[i].loosened ? cases[i].loosened : cases[i].schema;
        char keyword[SCHEMA_KEYWORD_BYTES];
        json_t *schema = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL),
               *want = json_loads(expected, JSON_DECODE_ANY, NULL);
        assert_non_null(schema);
        assert_int_equal(schema_loosen(schema, &grammar_limits_default, NULL, keyword),
                         cases[i].removed);
        assert_string_equal(keyword, cases[i].keyword);
        if (!json_equal(schema, want))
            fail_msg("%s became %s", cases[i].schema, json_dumps(schema, JSON_ENCODE_ANY));
        json_decref(schema);
        json_decref(want);
    }
}

/* More branches than a schema may have. */
static void test_loosen_branches(void **state)
{
    char keyword[SCHEMA_KEYWORD_BYTES];
    for (int plain = 0; plain < 2; plain++) {
        json_t *branches = json_array(), *listed = json_array();
        for (int i = 0; i < 300; i++) {
            json_array_append_new(branches, plain
                                                ? json_pack("{s:s}", "pattern", "a")
                                                : json_pack("{s:i,s:s}", "const", i, "title", "t"));
            json_array_append_new(listed, json_integer(i));
        }
        json_t *schema = json_pack("{s:{s:o}}", "items", "oneOf", branches);
        json_t *want =
            plain ? json_pack("{s:{}}", "items") : json_pack("{s:{s:O}}", "items", "enum", listed);
        assert_int_equal(schema_loosen(schema, &grammar_limits_default, NULL, keyword), plain);
        assert_true(json_equal(schema, want));
        json_decref(listed);
        json_decref(schema);
        json_decref(want);
    }
}

static void test_types(void **state)
{
    SCHEMA("{\"type\":\"null\"}", "null", NULL, "true", "\"\"", "nul");
    SCHEMA("{\"type\":[\"boolean\",\"null\"]}", "true", "false", "null", NULL, "0");
    SCHEMA("{\"type\":\"integer\"}", "0", "-7", "123456789012345678", NULL, "01", "1.5", "--1", "");
    SCHEMA("{\"type\":\"number\"}", "0.5", "-1e5", "1.25E-3", "7", NULL, "1.", ".5", "1e", "+1");
    SCHEMA("{\"type\":\"string\"}", "\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\xc3\xa9\"", NULL, "\"\n\"",
           "\"\\x\"", "\"\\ud83d\"", "\"a", "\"\xff\"");
    SCHEMA("true", "{}", "[1, {\"a\":null}]", "\"x\"", NULL, "[1,]", "{\"a\"}", "[  1]");
    SCHEMA("{}", "[[], {}]", NULL, "");
    REFUSED("false", ERROR_USAGE, "no answer");
}

/* OpenAPI 3.0. */
static void test_nullable(void **state)
{
    SCHEMA("{\"type\":\"integer\",\"minimum\":5,\"nullable\":true}", "5", "null", NULL, "4",
           "\"\"");
    SCHEMA("{\"type\":\"string\",\"enum\":[\"a\"],\"nullable\":true}", "\"a\"", "null", NULL,
           "\"b\"");
    SCHEMA("{\"type\":\"string\",\"enum\":[\"a\",null],\"nullable\":false}", "\"a\"", NULL, "null");
    SCHEMA("{\"allOf\":[{\"type\":\"string\",\"nullable\":true},{\"maxLength\":1}]}", "\"a\"",
           "null", NULL, "\"ab\"");
    REFUSED("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{}},\"nullable\":true}", ERROR_UNSUPPORTED,
            "#/nullable\"");
    REFUSED("{\"enum\":[1],\"nullable\":true}", ERROR_UNSUPPORTED, "#/nullable\"");
    REFUSED("{\"type\":\"integer\",\"nullable\":1}", ERROR_UNSUPPORTED, "#/nullable\"");
}

static void test_numbers(void **state)
{
    SCHEMA("{\"type\":\"number\",\"minimum\":-1.797e308,\"maximum\":1.797e308}", "-1e99", "5", NULL,
           "\"\"");
    SCHEMA("{\"type\":\"number\",\"minimum\":-1.797e308,\"exclusiveMaximum\":5}", "4.5", NULL, "5");
    REFUSED("{\"type\":\"number\",\"minimum\":1.797e308}", ERROR_UNSUPPORTED, "#/minimum\"");
    SCHEMA("{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}", "-5", "0", "9", "99", "120",
           NULL, "-0", "-6", "121", "1000", "00", "5.0");
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":0.5,\"maximum\":10}", "0.51", "10", "10.0",
           "9.999", "0.500001", NULL, "0.5", "0.50", "10.01", "11", "-1", "1e0");
    SCHEMA("{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":0}", "0", "7", "49", "700", NULL,
           "8", "50");
    SCHEMA("{\"type\":\"number\",\"multipleOf\":0.05}", "1.05", "0.1", "3", "-0.95", NULL, "1.01",
           "0.051");
    /* many residues, but few states that matter */
    SCHEMA("{\"type\":\"number\",\"multipleOf\":0.0206,\"minimum\":-1e9,\"maximum\":1e9}", "0.0206",
           "-2.06", "206", "999999999.9920", NULL, "0.0207", "-206.1", "1000000000.0126");
    SCHEMA("{\"type\":\"number\",\"multipleOf\":0.01,\"minimum\":-0.5,\"exclusiveMaximum\":100}",
           "-0.5", "-0.01", "0", "0.00", "99.99", NULL, "-0.51", "100", "100.00", "1.001", "-1");
    SCHEMA("{\"type\":\"integer\",\"maximum\":-10}", "-10", "-11", "-100", NULL, "-9", "0", "10");
    SCHEMA("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.25}", "-1.5", "-1", "-0.25",
           "-0.3", NULL, "-1.51", "-0.2", "0", "1");
    SCHEMA("{\"type\":\"integer\",\"minimum\":2.5}", "3", "10", NULL, "2");
    SCHEMA("{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}]}", "12", "-24",
           NULL, "4", "6");
}

static void test_strings(void **state)
{
    SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"",
           "\"\xc3\xa9\\n\xe2\x82\xac\"", NULL, "\"a\"", "\"abcd\"");
    SCHEMA("{\"type\":\"string\",\"maxLength\":20}", "\"\"", "\"12345678901234567890\"", NULL,
           "\"123456789012345678901\"");
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", "\"abc\"", NULL, "\"\"", "\"aB\"");
    SCHEMA("{\"type\":\"string\",\"pattern\":\"b\"}", "\"abc\"", "\"b\"", NULL, "\"ac\"");
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^a\\\"\\\\\\\\b\\n$\"}", "\"a\\\"\\\\b\\n\"", NULL,
           "\"a\"");
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^a*$\",\"maxLength\":2}", "\"aa\"", NULL, "\"aaa\"");
    SCHEMA("{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"", "\"1999-12-31\"", NULL,
           "\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"");
    SCHEMA("{\"type\":\"string\",\"format\":\"date\"}", "\"0001-01-01\"", "\"0004-02-29\"",
           "\"0400-02-29\"", "\"0010-12-31\"", "\"9999-12-31\"", NULL, "\"0000-01-01\"",
           "\"0000-02-29\"", "\"0100-02-29\"");
    SCHEMA("{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-02-29T23:59:59.5Z\"",
           "\"2024-01-01T00:00:00+02:00\"", NULL, "\"2024-01-01 00:00:00Z\"",
           "\"2024-01-01T24:00:00Z\"", "\"0000-01-01T00:00:00Z\"");
    SCHEMA("{\"type\":\"string\",\"format\":\"duration\"}", "\"P12345678DT1H2M3S\"", "\"P3W\"",
           "\"P999999Y\"", NULL, "\"P123456789D\"", "\"PT123456789S\"", "\"P1234567Y\"",
           "\"P1234567M\"", "\"P1234567W\"", "\"PT1234567H\"", "\"PT1234567M\"", "\"P\"",
           "\"P1D2H\"");
    SCHEMA("{\"type\":\"string\",\"format\":\"ipv6\"}", "\"::1\"", "\"1:2:3:4:5:6:7:8\"",
           "\"fe80::1:2\"", NULL, "\"1:2:3\"", "\"1::2::3\"", "\"12345::\"");
}

static void test_enum(void **state)
{
    SCHEMA("{\"enum\":[\"a\",\"ab\",1,null,{\"k\":[1,2]}]}", "\"a\"", "\"ab\"", "1", "null",
           "{\"k\":[1,2]}", "{\"k\": [1, 2]}", NULL, "\"b\"", "2", "{}");
    SCHEMA("{\"type\":\"string\",\"enum\":[\"a\",1]}", "\"a\"", NULL, "1");
    SCHEMA("{\"const\":0.1}", "0.1", NULL, "0.10000000000000001");
    SCHEMA("{\"enum\":[1,5,9],\"minimum\":4}", "5", "9", NULL, "1");
}

static void test_objects(void **state)
{
    static const char two[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
                              "\"b\":{\"type\":\"string\"}},\"required\":[\"b\"],"
                              "\"additionalProperties\":false}";
    SCHEMA(two, "{\"b\":\"x\"}", "{\"a\": 1, \"b\": \"\"}", "{\"a\":1,\"b\":\"\"}", NULL, "{}",
           "{\"a\":1}", "{\"b\":\"x\",\"c\":1}", "{\"b\":\"\",\"a\":1}", "{,\"b\":\"\"}",
           "{\"b\":1}", "{ \"b\":\"x\"}");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}", "{}", "{\"a\":1}",
           "{\"b\":[]}", "{\"a\":1,\"ab\":2,\"\":3}", "{\"c\\\"\":1}", NULL, "{\"a\":true}",
           "{\"b\":1,\"a\":true}", "{\"\\u0061\":true}");
    SCHEMA("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1}",
           "{\"x\":null}", "{\"x\":null,\"y\":null}", NULL, "{}", "{\"x\":1}");
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},"
           "\"additionalProperties\":false,\"minProperties\":2,\"maxProperties\":2}",
           "{\"a\":1,\"c\":2}", "{\"b\":1,\"c\":2}", NULL, "{\"a\":1}",
           "{\"a\":1,\"b\":1,\"c\":1}");
    SCHEMA("{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},"
           "\"y$\":{\"minimum\":5}},\"additionalProperties\":false}",
           "{\"x1\":1}", "{\"ay\":7}", "{\"xy\":6}", "{\"ay\":\"text\"}", NULL, "{\"xy\":4}",
           "{\"xy\":\"a\"}", "{\"z\":1}", "{\"x\":\"1\"}");
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}", "{\"abc\":1}",
           "{}", NULL, "{\"A\":1}");
    /* few possible keys: each once */
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/e\"},"
           "\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":2,"
           "\"$defs\":{\"e\":{\"enum\":[\"y\",\"x\",1,\"zz\"],\"maxLength\":1}}}",
           "{\"y\":3,\"x\":2}", NULL, "{\"y\":3,\"y\":2}", "{\"y\":3}", "{}", "{\"zz\":1}",
           "{\"y\":\"\",\"x\":1}", "{\"y\":3,\"x\":2,\"x\":2}");
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"const\":\"b\"},\"properties\":{\"a\":{},"
           "\"b\":{\"type\":\"null\"}}}",
           "{}", "{\"b\":null}", NULL, "{\"a\":1}", "{\"b\":1}", "{\"b\":null,\"b\":null}");
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^(b|a[12])$\"},"
           "\"minProperties\":3}",
           "{\"a1\":1,\"a2\":2,\"b\":3}", NULL, "{\"a1\":1,\"a2\":2}",
           "{\"a1\":1,\"a1\":2,\"b\":3}", "{\"a\":1}");
    SCHEMA("{\"type\":\"object\",\"patternProperties\":{\"^(b|c)$\":{\"type\":\"null\"},"
           "\"^x\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
           "{\"b\":null,\"c\":null,\"x1\":1}", "{\"x1\":1,\"x1\":1}", NULL,
           "{\"b\":null,\"b\":null}", "{\"b\":1}", "{\"bc\":null}");
}

static void test_arrays(void **state)
{
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
           "[1]", "[1, 2, 3]", "[1,2]", NULL, "[]", "[1,2,3,4]", "[\"a\"]", "[1,]");
    SCHEMA("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],"
           "\"items\":false}",
           "[]", "[1]", "[1,null]", NULL, "[null]", "[1,null,2]");
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":20,\"maxItems\":21}",
           "[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,"
           "null,null,null]",
           NULL,
           "[null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,"
           "null,null,null]");
    SCHEMA("{\"type\":\"array\",\"maxItems\":0}", "[]", NULL, "[1]");
}

static void test_combinations(void **state)
{
    SCHEMA("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"minLength\":1}", "1",
           "\"a\"", NULL, "\"\"", "null");
    SCHEMA("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
           "{\"properties\":{\"a\":{\"minimum\":3}},\"type\":\"object\"}]}",
           "{\"a\":3}", NULL, "{\"a\":2}", "{}");
    SCHEMA(
        "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":"
        "\"integer\"}},\"required\":[\"k\",\"v\"],\"additionalProperties\":false},{\"type\":"
        "\"object\",\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"],"
        "\"additionalProperties\":false}]}",
        "{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}", NULL, "{\"k\":\"a\"}", "{\"k\":\"c\"}");
    /* by the pattern, whatever the length; by both */
    SCHEMA("{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"^a\",\"maxLength\":9000},{\"pattern\":"
           "\"^b\",\"maxLength\":9000}]}",
           "\"ab\"", "\"ba\"", NULL, "\"c\"");
    SCHEMA("{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"^a*$\",\"maxLength\":4},{\"pattern\":"
           "\"^(?:aaa)*$\",\"minLength\":4}]}",
           "\"aaaa\"", "\"aaaaaa\"", NULL, "\"aaaaa\"");
    REFUSED("{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"a\",\"maxLength\":9000},{\"pattern\":"
            "\"b\",\"maxLength\":9000}]}",
            ERROR_UNSUPPORTED, "\"#/oneOf\"");
    REFUSED("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", ERROR_UNSUPPORTED,
            "\"#/oneOf\"");
}

static void test_references(void **state)
{
    SCHEMA(
        "{\"$ref\":\"#/$defs/tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":"
        "{\"type\":\"integer\"},\"next\":{\"$ref\":\"#/$defs/tree\"}},\"required\":[\"v\"],"
        "\"additionalProperties\":false}}}",
        "{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}", NULL, "{\"v\":1,\"next\":{}}");
    SCHEMA("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "[]", "[[],[[]]]", NULL, "[1]");
    SCHEMA("{\"$ref\":\"#x\",\"$defs\":{\"a~/b\":{\"$anchor\":\"x\",\"$ref\":\"#/$defs/c%25\"},"
           "\"c%\":{\"type\":\"null\"}}}",
           "null", NULL, "1");
    REFUSED("{\"$ref\":\"#/$defs/a\"}", ERROR_USAGE, "\"#/$ref\"");
    REFUSED("{\"$ref\":\"http://example.org/s\"}", ERROR_UNSUPPORTED, "\"#/$ref\"");
}

static void test_refusals(void **state)
{
    REFUSED("{\"type\":\"array\",\"uniqueItems\":true}", ERROR_UNSUPPORTED, "\"#/uniqueItems\"");
    REFUSED("{\"properties\":{\"a/b\":{\"not\":{}}}}", ERROR_UNSUPPORTED,
            "\"#/properties/a~1b/not\"");
    REFUSED("{\"items\":{\"if\":{}}}", ERROR_UNSUPPORTED, "\"#/items/if\"");
    REFUSED("{\"items\":[{}]}", ERROR_UNSUPPORTED, "\"#/items\"");
    REFUSED("{\"anyOf\":[{},{\"format\":\"iri\",\"type\":\"string\"}]}", ERROR_UNSUPPORTED,
            "\"#/anyOf/1/format\"");
    REFUSED("{\"type\":\"string\",\"pattern\":\"(?=a)\"}", ERROR_UNSUPPORTED, "\"#/pattern\"");
    REFUSED("{\"type\":\"strin\"}", ERROR_USAGE, "\"#/type\"");
    REFUSED("{\"minimum\":1,\"exclusiveMinimum\":true}", ERROR_USAGE, "\"#/exclusiveMinimum\"");
    REFUSED("{\"a\":1}", ERROR_UNSUPPORTED, "\"#/a\"");
    REFUSED("{\"type\":\"object\",\"minProperties\":2}", ERROR_UNSUPPORTED, "minProperties");
    REFUSED("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", ERROR_USAGE, "no answer");
    REFUSED("[1", ERROR_USAGE, "line 1");
    REFUSED("[1]", ERROR_USAGE, "\"#\"");
}

static void test_json_object(void **state)
{
    struct grammar *g = compile_ok(GRAMMAR_JSON, "");
    assert_true(whole_text(g, "{}", 2));
    assert_true(whole_text(g, "{\"a\": [1, {}]}", 14));
    assert_false(whole_text(g, "[]", 2));
    assert_false(whole_text(g, "{\n}", 3));
    grammar_free(g);
}

/* An answer cannot nest without end: 256 rules are the limit, and the closing brackets fit in. */
static void test_depth(void **state)
{
    struct grammar *g = compile_ok(GRAMMAR_JSON_SCHEMA, "true");
    char text[1000];
    unsigned deepest = 0;
    for (unsigned n = 1; n < 400; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        if (whole_text(g, text, 2 * n))
            deepest = n;
    }
    assert_in_range(deepest, 100, 256);
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loosen),      cmocka_unit_test(test_loosen_branches),
        cmocka_unit_test(test_nullable),    cmocka_unit_test(test_types),
        cmocka_unit_test(test_numbers),     cmocka_unit_test(test_strings),
        cmocka_unit_test(test_enum),        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),      cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_references),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_json_object), cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
