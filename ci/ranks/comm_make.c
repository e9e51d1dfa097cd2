// SPDX-License-Identifier: MIT OR Apache-2.0
// Communicators made by a part of a group, by type of split and with hints: MPI 5.0 sections 7.4.2, 7.4.4, 7.8 and
// 11.10.4.
#include "check.h"

enum { TAG = 5 };

static int sum_of_ones(MPI_Comm comm)
{
    int one = 1, sum = -1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

// Only the even ranks call.
static void s7_4_2_create_group_by_its_members_alone(void)
{
    MPI_Group world, even;
    MPI_Comm comm = MPI_COMM_WORLD;
    int range[1][3] = {{0, size - 1, 2}}, n = -1, me = -1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &even);
    if (rank % 2 == 0) {
        GOOD(MPI_Comm_create_group(MPI_COMM_WORLD, even, TAG, &comm));
        MPI_Comm_size(comm, &n);
        MPI_Comm_rank(comm, &me);
        EQUAL(n, (size + 1) / 2);
        EQUAL(me, rank / 2);
        EQUAL(sum_of_ones(comm), n);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&even);
    MPI_Group_free(&world);
}

// Overlapping groups, made in another order at each rank, with different tags; also reversed groups and groups of one
// rank.
static void s7_4_2_create_group_many(void)
{
    MPI_Group world, group;
    MPI_Comm pairs[2] = {MPI_COMM_NULL, MPI_COMM_NULL}, turned;
    int range[1][3] = {{size - 1, 0, -1}}, me = -1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    // Each rank with its right and with its left neighbour in a row.
    for (int i = 0; i < 2; i++) {
        int first = rank % 2 == i ? rank : rank - 1, both[2] = {first, first + 1};
        if (first < 0 || first + 1 >= size)
            continue;
        MPI_Group_incl(world, 2, both, &group);
        MPI_Comm_create_group(MPI_COMM_WORLD, group, first, &pairs[i]);
        MPI_Group_free(&group);
    }
    for (int i = 0; i < 2; i++) {
        if (pairs[i] == MPI_COMM_NULL)
            continue;
        EQUAL(sum_of_ones(pairs[i]), 2);
        MPI_Comm_free(&pairs[i]);
    }
    MPI_Group_range_incl(world, 1, range, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &turned);
    MPI_Comm_rank(turned, &me);
    EQUAL(me, size - 1 - rank);
    MPI_Comm_free(&turned);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

// Messages of the communicator from which it is made do not disturb it.
static void s7_4_2_create_group_beside_messages(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1;
    MPI_Request requests[2];
    MPI_Group world;
    MPI_Comm comm;
    MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    GOOD(MPI_Comm_create_group(MPI_COMM_WORLD, world, TAG, &comm));
    MPI_Isend(&rank, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    EQUAL(in, left);
    EQUAL(sum_of_ones(comm), size);
    MPI_Comm_free(&comm);
    MPI_Group_free(&world);
}

static void s7_4_2_create_group_with_wrong_arguments(void)
{
    MPI_Group world;
    MPI_Comm single, comm;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_dup(MPI_COMM_SELF, &single);
    MPI_Comm_set_errhandler(single, MPI_ERRORS_RETURN);
    if (size > 1)
        FAILS(MPI_Comm_create_group(single, world, TAG, &comm), MPI_ERR_GROUP);
    FAILS(MPI_Comm_create_group(single, MPI_GROUP_EMPTY, -1, &comm), MPI_ERR_TAG);
    GOOD(MPI_Comm_create_group(single, MPI_GROUP_EMPTY, TAG, &comm));
    CHECK(comm == MPI_COMM_NULL, "who is in no group got a communicator");
    MPI_Comm_free(&single);
    MPI_Group_free(&world);
}

static void s7_4_2_split_type_shared(void)
{
    MPI_Comm node;
    int n = -1, me = -1;
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &node));
    MPI_Comm_size(node, &n);
    MPI_Comm_rank(node, &me);
    CHECK(n >= 1 && n <= size, "%d ranks on this node", n);
    if (n == size)
        EQUAL(me, size - 1 - rank);
    EQUAL(sum_of_ones(node), n);
    MPI_Comm_free(&node);
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, rank ? MPI_COMM_TYPE_SHARED : MPI_UNDEFINED, 0,
                             MPI_INFO_NULL, &node));
    CHECK((node == MPI_COMM_NULL) == (rank == 0), "MPI_UNDEFINED is not kept");
    if (node != MPI_COMM_NULL)
        MPI_Comm_free(&node);
}

static void s7_4_2_split_type_guided(void)
{
    MPI_Comm part;
    MPI_Info info;
    int n = -1;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &part));
    CHECK(part != MPI_COMM_NULL, "mpi_shared_memory is not known");
    MPI_Comm_free(&part);
    MPI_Info_set(info, "mpi_hw_resource_type", "no such thing");
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &part));
    CHECK(part == MPI_COMM_NULL, "an unknown resource gives a communicator");
    MPI_Info_delete(info, "mpi_hw_resource_type");
    MPI_Info_set(info, "mpi_pset_name", "mpi://WORLD");
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &part));
    MPI_Comm_size(part, &n);
    EQUAL(n, size);
    MPI_Comm_free(&part);
    MPI_Info_set(info, "mpi_pset_name", "mpi://SELF");
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &part));
    MPI_Comm_size(part, &n);
    EQUAL(n, 1);
    MPI_Comm_free(&part);
    MPI_Info_free(&info);
    // Each unguided split finds something smaller, and the last one nothing.
    MPI_Comm level = MPI_COMM_WORLD, next;
    int depth = 0;
    do {
        int before, after = -1;
        MPI_Comm_size(level, &before);
        char resource[64] = "";
        int length = sizeof resource, is_told;
        MPI_Info_create(&info);
        GOOD(MPI_Comm_split_type(level, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &next));
        // The kind of split is in the info object of the members.
        MPI_Info_get_string(info, "mpi_hw_resource_type", &length, resource, &is_told);
        EQUAL(is_told, next != MPI_COMM_NULL);
        MPI_Info_free(&info);
        if (next != MPI_COMM_NULL) {
            CHECK(!strcmp(resource, "mpi_shared_memory"), "%s", resource);
            MPI_Comm_size(next, &after);
            CHECK(after < before, "%d ranks split into %d", before, after);
        }
        if (depth++)
            MPI_Comm_free(&level);
        level = next;
    } while (level != MPI_COMM_NULL && depth < 64);
    CHECK(depth < 64, "the splits do not end");
}

// Section 9.1.2: the hardware resources that are reported can be used for a split.
static void s9_1_2_hardware_resources(void)
{
    MPI_Info resources, wish;
    int count = 0;
    GOOD(MPI_Get_hw_resource_info(&resources));
    MPI_Info_get_nkeys(resources, &count);
    CHECK(count >= 1, "%d kinds of resources", count);
    MPI_Info_create(&wish);
    for (int i = 0; i < count; i++) {
        char key[MPI_MAX_INFO_KEY], bound[16] = "";
        int length = sizeof bound, flag = 0;
        MPI_Comm part;
        MPI_Info_get_nthkey(resources, i, key);
        MPI_Info_get_string(resources, key, &length, bound, &flag);
        CHECK(!strcmp(bound, "true") || !strcmp(bound, "false"), "%s is %s", key, bound);
        MPI_Info_set(wish, "mpi_hw_resource_type", key);
        GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, wish, &part));
        CHECK((part != MPI_COMM_NULL) == !strcmp(bound, "true"), "%s is %s", key, bound);
        if (part != MPI_COMM_NULL)
            MPI_Comm_free(&part);
    }
    MPI_Info_free(&wish);
    MPI_Info_free(&resources);
}

// Section 11.10.4: pending communication completes first.
static void s11_10_4_disconnect(void)
{
    static char out[500000], in[500000];
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request requests[2];
    MPI_Comm comm, parent = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    fill(out, sizeof out, (unsigned)rank);
    MPI_Irecv(in, sizeof in, MPI_BYTE, left, TAG, comm, &requests[0]);
    MPI_Isend(out, sizeof out, MPI_BYTE, right, TAG, comm, &requests[1]);
    GOOD(MPI_Comm_disconnect(&comm));
    CHECK(comm == MPI_COMM_NULL, "the handle is still set");
    PAYLOAD(in, sizeof in, (unsigned)left);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    GOOD(MPI_Comm_get_parent(&parent));
    CHECK(parent == MPI_COMM_NULL, "a parent although nobody spawned this");
}

static void s7_4_2_split_type_wrong(void)
{
    MPI_Comm comm, part;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    FAILS(MPI_Comm_split_type(comm, 4711, 0, MPI_INFO_NULL, &part), MPI_ERR_ARG);
    MPI_Comm_free(&comm);
}

static int hint_is(MPI_Comm comm, const char *key, const char *wanted)
{
    MPI_Info used;
    char value[64] = "";
    int length = sizeof value, flag = 0;
    GOOD(MPI_Comm_get_info(comm, &used));
    MPI_Info_get_string(used, key, &length, value, &flag);
    MPI_Info_free(&used);
    return wanted ? flag && strcmp(value, wanted) == 0 : !flag;
}

static void s7_4_4_hints(void)
{
    static const char key[] = "mpi_assert_no_any_tag", other[] = "mpi_assert_exact_length";
    MPI_Comm comm, copy, plain;
    MPI_Info info;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    CHECK(hint_is(comm, key, "false"), "the default is not told");
    MPI_Info_create(&info);
    MPI_Info_set(info, key, "true");
    MPI_Info_set(info, "nobody knows this one", "true");
    GOOD(MPI_Comm_set_info(comm, info));
    CHECK(hint_is(comm, key, "true"), "the hint is not in use");
    CHECK(hint_is(comm, "nobody knows this one", NULL), "an unknown hint is said to be in use");
    // A duplicate has the same hints; a duplicate with an info object has only those of the info object.
    MPI_Comm_dup(comm, &copy);
    CHECK(hint_is(copy, key, "true"), "the hint was not duplicated");
    MPI_Info_delete(info, key);
    MPI_Info_set(info, other, "true");
    GOOD(MPI_Comm_dup_with_info(comm, info, &plain));
    CHECK(hint_is(plain, key, "false") && hint_is(plain, other, "true"), "wrong hints");
    EQUAL(sum_of_ones(plain), size);
    CHECK(hint_is(MPI_COMM_WORLD, key, "false"), "the hint of another communicator");
    MPI_Info_free(&info);
    MPI_Comm_free(&plain);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
}

static int name_is(MPI_Comm comm, const char *wanted)
{
    char name[MPI_MAX_OBJECT_NAME] = "?";
    int length = -1;
    GOOD(MPI_Comm_get_name(comm, name, &length));
    return strcmp(name, wanted) == 0 && length == (int)strlen(wanted);
}

static void s7_8_names(void)
{
    MPI_Comm copy;
    CHECK(name_is(MPI_COMM_WORLD, "MPI_COMM_WORLD"), "name of MPI_COMM_WORLD");
    CHECK(name_is(MPI_COMM_SELF, "MPI_COMM_SELF"), "name of MPI_COMM_SELF");
    CHECK(name_is(MPI_COMM_NULL, "MPI_COMM_NULL"), "name of MPI_COMM_NULL");
    MPI_Comm_set_name(MPI_COMM_SELF, "alone");
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    CHECK(name_is(copy, ""), "a duplicate has a name");
    CHECK(name_is(MPI_COMM_SELF, "alone"), "the name did not stay");
    MPI_Comm_set_name(MPI_COMM_SELF, "MPI_COMM_SELF");
    MPI_Comm_free(&copy);
}

// Each rank passes the group to which it belongs: the groups are disjoint.
static void s7_4_2_create_for_disjoint_groups(void)
{
    int half = size / 2, low = rank < half, range[1][3] = {{low ? 0 : half, low ? half - 1 : size - 1, 1}};
    if (size < 2)
        return;
    MPI_Group world, mine;
    MPI_Comm comm;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &mine);
    GOOD(MPI_Comm_create(MPI_COMM_WORLD, mine, &comm));
    int n = 0;
    MPI_Comm_size(comm, &n);
    EQUAL(n, low ? half : size - half);
    for (int i = 0; i < (low ? 300 : 200); i++) {
        int value = rank == range[0][0] ? (low ? 1000 : 2000) + i : -1, one = 1, sum = -1;
        GOOD(MPI_Bcast(&value, 1, MPI_INT, 0, comm));
        EQUAL(value, (low ? 1000 : 2000) + i);
        if (i % 10 == 0) {
            GOOD(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
            EQUAL(sum, n);
        }
    }
    MPI_Comm_free(&comm);
    MPI_Group_free(&mine);
    MPI_Group_free(&world);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s7_4_2_create_group_by_its_members_alone);
    RUN(s7_4_2_create_group_many);
    RUN(s7_4_2_create_group_beside_messages);
    RUN(s7_4_2_create_group_with_wrong_arguments);
    RUN(s7_4_2_split_type_shared);
    RUN(s7_4_2_split_type_guided);
    RUN(s7_4_2_split_type_wrong);
    RUN(s9_1_2_hardware_resources);
    RUN(s7_4_4_hints);
    RUN(s7_8_names);
    RUN(s11_10_4_disconnect);
    RUN(s7_4_2_create_for_disjoint_groups);
    return finish();
}
