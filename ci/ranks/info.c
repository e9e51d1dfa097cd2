// SPDX-License-Identifier: MIT OR Apache-2.0
// Info objects: MPI 5.0 chapter 10.
#include "check.h"

enum { GUARD = 'x' };

static MPI_Info info;

static void set(const char *key, const char *value)
{
    GOOD(MPI_Info_set(info, key, value));
}

// Checks the value of `key` by both queries; NULL: there is none.
static void has(MPI_Info object, const char *key, const char *expected)
{
    char value[MPI_MAX_INFO_VAL];
    int found = -1, length = -1, room = sizeof value;
    GOOD(MPI_Info_get_valuelen(object, key, &length, &found));
    EQUAL(found, expected != NULL);
    GOOD(MPI_Info_get_string(object, key, &room, value, &found));
    EQUAL(found, expected != NULL);
    if (expected && found) {
        EQUAL(length, strlen(expected));
        EQUAL(room, strlen(expected) + 1);
        CHECK(!strcmp(value, expected), "%s is %s, expected %s", key, value, expected);
    }
    memset(value, GUARD, sizeof value);
    GOOD(MPI_Info_get(object, key, (int)sizeof value - 1, value, &found));
    EQUAL(found, expected != NULL);
    if (expected && found)
        CHECK(!strcmp(value, expected), "%s is %s, expected %s", key, value, expected);
    else
        EQUAL(value[0], GUARD);
}

static void keys_are(MPI_Info object, int count, const char *const *expected)
{
    int keys = -1;
    char key[MPI_MAX_INFO_KEY];
    GOOD(MPI_Info_get_nkeys(object, &keys));
    EQUAL(keys, count);
    for (int i = 0; i < count && i < keys; i++) {
        GOOD(MPI_Info_get_nthkey(object, i, key));
        CHECK(!strcmp(key, expected[i]), "key %d is %s, expected %s", i, key, expected[i]);
    }
    FAILS(MPI_Info_get_nthkey(object, count, key), MPI_ERR_ARG);
    FAILS(MPI_Info_get_nthkey(object, -1, key), MPI_ERR_ARG);
}

static void s10_keys_keep_their_order(void)
{
    GOOD(MPI_Info_create(&info));
    keys_are(info, 0, NULL);
    set("one", "1");
    set("two", "2");
    set("three", "");
    keys_are(info, 3, (const char *const[]){"one", "two", "three"});
    // A key that is set again has its new value and its old place.
    set("one", "first");
    keys_are(info, 3, (const char *const[]){"one", "two", "three"});
    has(info, "one", "first");
    has(info, "two", "2");
    has(info, "three", "");
    has(info, "four", NULL);
    // Keys are sensitive to case.
    has(info, "ONE", NULL);
    GOOD(MPI_Info_delete(info, "two"));
    keys_are(info, 2, (const char *const[]){"one", "three"});
    has(info, "two", NULL);
    FAILS(MPI_Info_delete(info, "two"), MPI_ERR_INFO_NOKEY);
    keys_are(info, 2, (const char *const[]){"one", "three"});
    GOOD(MPI_Info_free(&info));
    CHECK(info == MPI_INFO_NULL, "the handle is still there");
}

static void s10_a_duplicate_is_independent(void)
{
    MPI_Info copy;
    GOOD(MPI_Info_create(&info));
    set("a", "1");
    set("b", "2");
    GOOD(MPI_Info_dup(info, &copy));
    keys_are(copy, 2, (const char *const[]){"a", "b"});
    set("a", "3");
    GOOD(MPI_Info_delete(copy, "b"));
    has(copy, "a", "1");
    has(info, "b", "2");
    GOOD(MPI_Info_free(&info));
    has(copy, "a", "1");
    GOOD(MPI_Info_free(&copy));
}

// A value is cut to the room there is, always ends with a NUL, and nothing behind it is written.
static void s10_values_are_cut_to_the_room(void)
{
    char value[16];
    int found, room;
    GOOD(MPI_Info_create(&info));
    set("key", "abcdef");
    for (int length = 0; length <= 8; length++) {
        int kept = length < 6 ? length : 6;
        memset(value, GUARD, sizeof value);
        GOOD(MPI_Info_get(info, "key", length, value, &found));
        EQUAL(found, 1);
        EQUAL(strlen(value), kept);
        EQUAL(strncmp(value, "abcdef", (size_t)kept), 0);
        EQUAL(value[length + 1], GUARD);
    }
    // buflen counts the NUL, and returns what would be needed; with 0 the value is not touched.
    for (int length = 0; length <= 9; length++) {
        int kept = length < 7 ? length - 1 : 6;
        memset(value, GUARD, sizeof value);
        room = length;
        GOOD(MPI_Info_get_string(info, "key", &room, value, &found));
        EQUAL(found, 1);
        EQUAL(room, 7);
        EQUAL(value[length], GUARD);
        if (length > 0) {
            EQUAL(strlen(value), kept);
            EQUAL(strncmp(value, "abcdef", (size_t)kept), 0);
        }
    }
    // Without the key neither is touched.
    room = 5;
    memset(value, GUARD, sizeof value);
    GOOD(MPI_Info_get_string(info, "none", &room, value, &found));
    EQUAL(found, 0);
    EQUAL(room, 5);
    EQUAL(value[0], GUARD);
    GOOD(MPI_Info_free(&info));
}

static void s10_longest_keys_and_values(void)
{
    static char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1], back[MPI_MAX_INFO_VAL];
    int room = sizeof back, found;
    GOOD(MPI_Info_create(&info));
    memset(key, 'k', MPI_MAX_INFO_KEY - 1);
    memset(value, 'v', MPI_MAX_INFO_VAL - 1);
    set(key, value);
    GOOD(MPI_Info_get_string(info, key, &room, back, &found));
    EQUAL(found, 1);
    EQUAL(strcmp(value, back), 0);
    value[MPI_MAX_INFO_VAL - 1] = 'v';
    FAILS(MPI_Info_set(info, key, value), MPI_ERR_INFO_VALUE);
    key[MPI_MAX_INFO_KEY - 1] = 'k';
    FAILS(MPI_Info_set(info, key, "1"), MPI_ERR_INFO_KEY);
    FAILS(MPI_Info_delete(info, key), MPI_ERR_INFO_KEY);
    FAILS(MPI_Info_set(info, "", "1"), MPI_ERR_INFO_KEY);
    key[MPI_MAX_INFO_KEY - 1] = '\0';
    keys_are(info, 1, (const char *const[]){key});
    GOOD(MPI_Info_free(&info));
}

static void s10_no_object(void)
{
    int keys;
    MPI_Info none = MPI_INFO_NULL;
    FAILS(MPI_Info_set(MPI_INFO_NULL, "key", "value"), MPI_ERR_INFO);
    FAILS(MPI_Info_get_nkeys(MPI_INFO_NULL, &keys), MPI_ERR_INFO);
    FAILS(MPI_Info_free(&none), MPI_ERR_INFO);
    // The one of the environment can be read and not be changed.
    FAILS(MPI_Info_set(MPI_INFO_ENV, "maxprocs", "1"), MPI_ERR_INFO);
    FAILS(MPI_Info_delete(MPI_INFO_ENV, "maxprocs"), MPI_ERR_INFO);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    RUN(s10_keys_keep_their_order);
    RUN(s10_a_duplicate_is_independent);
    RUN(s10_values_are_cut_to_the_room);
    RUN(s10_longest_keys_and_values);
    RUN(s10_no_object);
    return finish();
}
