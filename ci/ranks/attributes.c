// SPDX-License-Identifier: MIT OR Apache-2.0
// Attributes: MPI 5.0 sections 7.7, 11.2.4 and 16.1.
#include "check.h"

enum { MANY = 5 };

// The calls of the functions below, in order: the attribute's value, negative for a delete.
static int trail[64], steps;
static MPI_Comm trail_comm;
static void *trail_state;

static void note(int value)
{
    if (steps < COUNT_OF(trail))
        trail[steps++] = value;
}

static int copy_plus_100(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)key;
    trail_comm = comm;
    trail_state = state;
    note(*(int *)in);
    static int copies[64], used;
    copies[used % 64] = *(int *)in + 100;
    *(int **)out = &copies[used++ % 64];
    *flag = 1;
    return MPI_SUCCESS;
}

static int copy_nothing(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)out;
    note(*(int *)in);
    *flag = 0;
    return MPI_SUCCESS;
}

static int copy_fails(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)in, (void)out;
    *flag = 1;
    return MPI_ERR_TOPOLOGY;
}

static int delete_notes(MPI_Comm comm, int key, void *value, void *state)
{
    (void)key;
    trail_comm = comm;
    trail_state = state;
    note(-*(int *)value);
    return MPI_SUCCESS;
}

static int refuse = 1;

static int delete_refuses(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)state;
    note(-*(int *)value);
    return refuse ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int *get(MPI_Comm comm, int key)
{
    int *value = NULL, flag = -1;
    GOOD(MPI_Comm_get_attr(comm, key, &value, &flag));
    return flag ? value : NULL;
}

static void s7_7_2_set_get_delete(void)
{
    int key = MPI_KEYVAL_INVALID, one = 1, two = 2, state = 0;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    GOOD(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_notes, &key, &state));
    CHECK(key != MPI_KEYVAL_INVALID, "no key was made");
    CHECK(!get(comm, key), "there is a value before one was set");
    GOOD(MPI_Comm_set_attr(comm, key, &one));
    CHECK(get(comm, key) == &one, "another value came back");
    steps = 0;
    // A new value deletes the old one.
    GOOD(MPI_Comm_set_attr(comm, key, &two));
    EQUAL(steps, 1);
    EQUAL(trail[0], -1);
    CHECK(trail_comm == comm && trail_state == &state, "the function got another object or state");
    CHECK(get(comm, key) == &two, "another value came back");
    GOOD(MPI_Comm_delete_attr(comm, key));
    EQUAL(trail[1], -2);
    CHECK(!get(comm, key), "the value is still there");
    // NULL is a value as well.
    MPI_Comm_free_keyval(&key);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    GOOD(MPI_Comm_set_attr(comm, key, NULL));
    void *value = &one;
    int flag = -1;
    GOOD(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(flag == 1 && value == NULL, "flag %d", flag);
    GOOD(MPI_Comm_free_keyval(&key));
    EQUAL(key, MPI_KEYVAL_INVALID);
    MPI_Comm_free(&comm);
}

static void s7_7_2_dup_copies_in_order_and_free_deletes_backwards(void)
{
    int keys[MANY], values[MANY], state = 0;
    static const int order[MANY] = {3, 0, 4, 1, 2};
    MPI_Comm comm, copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < MANY; i++) {
        values[i] = i + 1;
        MPI_Comm_create_keyval(i == 4 ? copy_nothing : copy_plus_100, delete_notes, &keys[i], &state);
    }
    for (int i = 0; i < MANY; i++)
        GOOD(MPI_Comm_set_attr(comm, keys[order[i]], &values[order[i]]));
    steps = 0;
    GOOD(MPI_Comm_dup(comm, &copy));
    EQUAL(steps, MANY);
    for (int i = 0; i < MANY; i++)
        EQUAL(trail[i], order[i] + 1);
    CHECK(trail_comm == comm && trail_state == &state, "the function got another object or state");
    for (int i = 0; i < MANY; i++) {
        int *value = get(copy, keys[i]);
        CHECK(i == 4 ? !value : value && *value == i + 101, "key %d", i);
    }
    steps = 0;
    GOOD(MPI_Comm_free(&copy));
    EQUAL(steps, MANY - 1);
    EQUAL(trail[0], -103);
    EQUAL(trail[1], -102);
    EQUAL(trail[2], -101);
    EQUAL(trail[3], -104);
    GOOD(MPI_Comm_free(&comm));
    EQUAL(trail[4], -3);
    EQUAL(trail[8], -4);
    for (int i = 0; i < MANY; i++)
        MPI_Comm_free_keyval(&keys[i]);
}

static void s7_7_2_the_predefined_functions(void)
{
    int dup, null, value = 7;
    MPI_Comm comm, copy, part;
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &null, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_attr(comm, dup, &value);
    MPI_Comm_set_attr(comm, null, &value);
    MPI_Comm_dup(comm, &copy);
    CHECK(get(copy, dup) == &value, "MPI_COMM_DUP_FN does not copy the pointer");
    CHECK(!get(copy, null), "MPI_COMM_NULL_COPY_FN copies");
    // Only duplicates get attributes.
    MPI_Comm_split(comm, 0, 0, &part);
    CHECK(!get(part, dup), "a split got an attribute");
    MPI_Comm_free(&part);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&dup);
    MPI_Comm_free_keyval(&null);
}

// A freed key works as long as an object has an attribute with it.
static void s7_7_2_a_freed_key_lives_with_its_attributes(void)
{
    int key, number, value = 9;
    MPI_Comm comm, copy;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_keyval(copy_plus_100, delete_notes, &key, NULL);
    number = key;
    MPI_Comm_set_attr(comm, key, &value);
    GOOD(MPI_Comm_free_keyval(&key));
    CHECK(get(comm, number) == &value, "the value went with the key");
    MPI_Comm_dup(comm, &copy);
    CHECK(get(copy, number) && *get(copy, number) == 109, "the value was not copied");
    steps = 0;
    MPI_Comm_free(&comm);
    GOOD(MPI_Comm_delete_attr(copy, number));
    EQUAL(steps, 2);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    FAILS(MPI_Comm_set_attr(copy, number, &value), MPI_ERR_KEYVAL);
    MPI_Comm_free(&copy);
}

static void s7_7_2_errors_of_the_functions(void)
{
    int key, bomb, value = 5;
    MPI_Comm comm, copy = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(copy_plus_100, delete_refuses, &key, NULL);
    MPI_Comm_set_attr(comm, key, &value);
    FAILS(MPI_Comm_set_attr(comm, key, &bomb), MPI_ERR_OTHER);
    FAILS(MPI_Comm_delete_attr(comm, key), MPI_ERR_OTHER);
    CHECK(get(comm, key) == &value, "the value went although its function refused");
    MPI_Comm freed = comm;
    FAILS(MPI_Comm_free(&freed), MPI_ERR_OTHER);
    CHECK(freed == comm && get(comm, key) == &value, "it was freed although a function refused");
    // The attributes that a failed dup has copied are deleted again.
    MPI_Comm_create_keyval(copy_fails, MPI_COMM_NULL_DELETE_FN, &bomb, NULL);
    MPI_Comm_set_attr(comm, bomb, &value);
    steps = 0;
    FAILS(MPI_Comm_dup(comm, &copy), MPI_ERR_TOPOLOGY);
    CHECK(copy == MPI_COMM_NULL, "a failed dup gave a handle");
    EQUAL(steps, 2);
    EQUAL(trail[1], -105);
    refuse = 0;
    MPI_Comm_free(&comm);
    refuse = 1;
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free_keyval(&bomb);
}

static int other_key;

// Functions that call MPI: messages, attributes of the same object, new communicators.
static int copy_calls(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    int sum = 0, one = 1, n;
    MPI_Comm inner;
    MPI_Comm_size(comm, &n);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    EQUAL(sum, n);
    CHECK(get(comm, key) == in, "the attribute is not there while it is copied");
    MPI_Comm_split(comm, 0, 0, &inner);
    MPI_Comm_set_attr(inner, other_key, state);
    MPI_Comm_free(&inner);
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_calls(MPI_Comm comm, int key, void *value, void *state)
{
    (void)state;
    CHECK(get(comm, key) == value, "the attribute is not there while it is deleted");
    MPI_Barrier(comm);
    if (get(comm, other_key))
        GOOD(MPI_Comm_delete_attr(comm, other_key));
    note(1);
    return MPI_SUCCESS;
}

static void s7_7_2_functions_may_call_mpi(void)
{
    int key, value = 3;
    MPI_Comm comm, copy;
    MPI_Comm_create_keyval(copy_calls, delete_calls, &key, &value);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, delete_notes, &other_key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_attr(comm, other_key, &value);
    MPI_Comm_set_attr(comm, key, &value);
    MPI_Comm_dup(comm, &copy);
    CHECK(get(copy, key) == &value && get(copy, other_key) == &value, "not copied");
    steps = 0;
    MPI_Comm_free(&copy);
    EQUAL(steps, 2);
    EQUAL(trail[0], -3);
    EQUAL(trail[1], 1);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free_keyval(&other_key);
}

static void s7_7_2_wrong_keys(void)
{
    int key, type_key, invalid = MPI_KEYVAL_INVALID, flag, value = 1, tag_ub = MPI_TAG_UB;
    void *got;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, NULL);
    FAILS(MPI_Comm_set_attr(comm, type_key, &value), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_get_attr(comm, MPI_KEYVAL_INVALID, &got, &flag), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_get_attr(comm, type_key, &got, &flag), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_delete_attr(comm, key), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_set_attr(comm, MPI_TAG_UB, &value), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_delete_attr(comm, MPI_TAG_UB), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_free_keyval(&tag_ub), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_free_keyval(&invalid), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_free_keyval(&type_key), MPI_ERR_KEYVAL);
    MPI_Comm_free_keyval(&key);
    MPI_Type_free_keyval(&type_key);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
}

static int type_copy(MPI_Datatype type, int key, void *state, void *in, void *out, int *flag)
{
    (void)type, (void)key, (void)state;
    note(*(int *)in);
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int type_delete(MPI_Datatype type, int key, void *value, void *state)
{
    (void)type, (void)key, (void)state;
    note(-*(int *)value);
    return refuse ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void s7_7_4_attributes_of_datatypes(void)
{
    int key, again, values[2] = {1, 2}, flag = -1, *value = NULL;
    MPI_Datatype type, copy;
    refuse = 0;
    GOOD(MPI_Type_create_keyval(type_copy, type_delete, &key, NULL));
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, type_delete, &again, NULL);
    MPI_Type_contiguous(3, MPI_INT, &type);
    GOOD(MPI_Type_set_attr(type, key, &values[0]));
    GOOD(MPI_Type_set_attr(type, again, &values[1]));
    steps = 0;
    MPI_Type_dup(type, &copy);
    EQUAL(steps, 1);
    GOOD(MPI_Type_get_attr(copy, again, &value, &flag));
    CHECK(flag && value == &values[1], "flag %d", flag);
    MPI_Type_free(&copy);
    EQUAL(trail[1], -2);
    EQUAL(trail[2], -1);
    GOOD(MPI_Type_delete_attr(type, again));
    GOOD(MPI_Type_get_attr(type, again, &value, &flag));
    EQUAL(flag, 0);
    // Predefined datatypes have attributes as well.
    GOOD(MPI_Type_set_attr(MPI_INT, key, &values[1]));
    GOOD(MPI_Type_get_attr(MPI_INT, key, &value, &flag));
    CHECK(flag && value == &values[1], "flag %d", flag);
    GOOD(MPI_Type_delete_attr(MPI_INT, key));
    // A function that refuses keeps the type alive.
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    refuse = 1;
    FAILS(MPI_Type_free(&type), MPI_ERR_OTHER);
    refuse = 0;
    GOOD(MPI_Type_free(&type));
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free_keyval(&key);
    MPI_Type_free_keyval(&again);
    refuse = 1;
}

static void s9_1_2_predefined_attributes(void)
{
    static const int keys[] = {MPI_TAG_UB, MPI_WTIME_IS_GLOBAL, MPI_UNIVERSE_SIZE, MPI_LASTUSEDCODE};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < COUNT_OF(keys); i++) {
        int *of_world = get(MPI_COMM_WORLD, keys[i]), *of_copy = get(comm, keys[i]);
        CHECK(of_world && of_copy && *of_world == *of_copy, "key %d", keys[i]);
    }
    CHECK(*get(comm, MPI_TAG_UB) >= 32767, "MPI_TAG_UB is %d", *get(comm, MPI_TAG_UB));
    CHECK(*get(comm, MPI_LASTUSEDCODE) >= MPI_ERR_LASTCODE, "%d", *get(comm, MPI_LASTUSEDCODE));
    MPI_Comm_free(&comm);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void s16_1_the_deprecated_names(void)
{
    int key, value = 4, flag = -1, *got = NULL;
    MPI_Comm copy;
    GOOD(MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, &key, NULL));
    GOOD(MPI_Attr_put(MPI_COMM_SELF, key, &value));
    GOOD(MPI_Attr_get(MPI_COMM_SELF, key, &got, &flag));
    CHECK(flag && got == &value, "flag %d", flag);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    CHECK(get(copy, key) == &value, "not copied");
    MPI_Comm_free(&copy);
    GOOD(MPI_Attr_delete(MPI_COMM_SELF, key));
    CHECK(!get(MPI_COMM_SELF, key), "still there");
    GOOD(MPI_Keyval_free(&key));
    EQUAL(key, MPI_KEYVAL_INVALID);
}
#pragma GCC diagnostic pop

static int last_values[MANY], deleted_at_the_end;

// Section 11.2.4: at MPI_Finalize, the last attribute first, and MPI still works.
static int at_the_end(MPI_Comm comm, int key, void *value, void *state)
{
    int finalized = -1, n = -1, one = 1, sum = -1;
    (void)key, (void)state;
    check_test = "s11_2_4_at_the_end";
    MPI_Finalized(&finalized);
    EQUAL(finalized, 0);
    MPI_Comm_size(comm, &n);
    EQUAL(n, 1);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(sum, size);
    deleted_at_the_end++;
    EQUAL(*(int *)value, MANY - deleted_at_the_end);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s7_7_2_set_get_delete);
    RUN(s7_7_2_dup_copies_in_order_and_free_deletes_backwards);
    RUN(s7_7_2_the_predefined_functions);
    RUN(s7_7_2_a_freed_key_lives_with_its_attributes);
    RUN(s7_7_2_errors_of_the_functions);
    RUN(s7_7_2_functions_may_call_mpi);
    RUN(s7_7_2_wrong_keys);
    RUN(s7_7_4_attributes_of_datatypes);
    RUN(s9_1_2_predefined_attributes);
    RUN(s16_1_the_deprecated_names);
    for (int i = 0; i < MANY; i++) {
        int key;
        last_values[i] = i;
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, &last_values[i]);
        MPI_Comm_free_keyval(&key);
    }
    int status = finish();
    if (deleted_at_the_end != MANY) {
        fprintf(stderr, "rank %d: MPI_Finalize deleted %d attributes of %d\n", rank, deleted_at_the_end, MANY);
        return 1;
    }
    return status;
}
