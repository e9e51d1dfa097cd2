// SPDX-License-Identifier: MIT OR Apache-2.0
// Performance variables: MPI 5.0 section 15.3.7; invalid handles are reported, which other MPIs need not do. Before
// MPI_Init, between MPI_Init and MPI_Finalize, and after MPI_Finalize.
// MPIT-035..042, MPIT-044, MPIT-047, MPIT-048, MPIT-051..053, MPIT-065..077, MPIT-093..095, MPIT-098..102,
// MPIT-107..109, MPIT-113..117
#include "check.h"

enum { ROOM = 4096, MOST = 4096 };

struct info {
    char name[ROOM], text[ROOM];
    int verbosity, class, bind, readonly, continuous, atomic, name_room, text_room;
    MPI_Datatype type;
    MPI_T_enum words;
};

static void ask(int index, struct info *info)
{
    memset(info, 0, sizeof *info);
    info->name_room = info->text_room = ROOM;
    GOOD(MPI_T_pvar_get_info(index, info->name, &info->name_room, &info->verbosity, &info->class, &info->type, &info->words,
                             info->text, &info->text_room, &info->bind, &info->readonly, &info->continuous, &info->atomic));
}

static int is_unsigned(MPI_Datatype type)
{
    return type == MPI_UNSIGNED || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG || type == MPI_UINT32_T ||
           type == MPI_UINT64_T;
}

static int fits(int class, MPI_Datatype type)
{
    switch (class) {
    case MPI_T_PVAR_CLASS_STATE:
        return type == MPI_INT;
    case MPI_T_PVAR_CLASS_PERCENTAGE:
        return type == MPI_DOUBLE;
    case MPI_T_PVAR_CLASS_COUNTER:
        return is_unsigned(type);
    case MPI_T_PVAR_CLASS_LEVEL:
    case MPI_T_PVAR_CLASS_SIZE:
    case MPI_T_PVAR_CLASS_HIGHWATERMARK:
    case MPI_T_PVAR_CLASS_LOWWATERMARK:
    case MPI_T_PVAR_CLASS_AGGREGATE:
    case MPI_T_PVAR_CLASS_TIMER:
        return is_unsigned(type) || type == MPI_DOUBLE;
    case MPI_T_PVAR_CLASS_GENERIC:
        return 1;
    }
    return 0;
}

static void s15_3_7_each_variable_is_described(void)
{
    static struct info first, again;
    static char names[MOST][256];
    static int classes[MOST];
    int num = -1, index;
    GOOD(MPI_T_pvar_get_num(&num));
    CHECK(num >= 0 && num < MOST, "%d variables", num);
    for (int i = 0; i < num && i < MOST; i++) {
        ask(i, &first);
        ask(i, &again);
        CHECK(!memcmp(&first, &again, sizeof first), "variable %d is told in two ways", i);
        EQUAL(first.name_room, strlen(first.name) + 1);
        EQUAL(first.text_room, strlen(first.text) + 1);
        CHECK(first.name_room > 1 && first.name_room <= 256, "variable %d: %s", i, first.name);
        CHECK(fits(first.class, first.type), "%s has a type that class %d has not", first.name, first.class);
        CHECK(first.words == MPI_T_ENUM_NULL || first.type == MPI_INT, "%s has words and is no int", first.name);
        for (int *flag = (int[]){first.readonly, first.continuous, first.atomic, 2}; *flag < 2; flag++)
            CHECK(*flag == 0 || *flag == 1, "%s: flag %d", first.name, *flag);
        index = -1;
        GOOD(MPI_T_pvar_get_index(first.name, first.class, &index));
        EQUAL(index, i);
        memcpy(names[i], first.name, sizeof names[i]);
        classes[i] = first.class;
        for (int j = 0; j < i; j++)
            CHECK(strcmp(names[i], names[j]) || classes[i] != classes[j], "%s is there twice", names[i]);
        int length = 3;
        char name[4] = "###";
        GOOD(MPI_T_pvar_get_info(i, name, &length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
        EQUAL(length, first.name_room);
        EQUAL(strlen(name), first.name_room - 1 < 2 ? first.name_room - 1 : 2);
        GOOD(MPI_T_pvar_get_info(i, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    }
    EQUAL(MPI_T_pvar_get_index("no_such_variable_at_all", MPI_T_PVAR_CLASS_LEVEL, &index), MPI_T_ERR_INVALID_NAME);
    EQUAL(MPI_T_pvar_get_info(num, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_pvar_get_info(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
}

// A variable allows exactly the operations that its flags state.
static void one_variable(MPI_T_pvar_session session, int index)
{
    static struct info info;
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    MPI_Comm world = MPI_COMM_WORLD;
    unsigned long long value[64], again[64], zero[64] = {0};
    int count = 0, started;
    ask(index, &info);
    if (info.bind == MPI_T_BIND_MPI_COMM) {
        CHECK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS, "%s: no object", info.name);
        int active, over;
        MPI_Initialized(&active);
        MPI_Finalized(&over);
        if (!active || over)
            return;
    } else if (info.bind != MPI_T_BIND_NO_OBJECT) {
        return;
    }
    GOOD(MPI_T_pvar_handle_alloc(session, index, &world, &handle, &count));
    CHECK(handle != MPI_T_PVAR_HANDLE_NULL && count >= 1, "%s: count %d", info.name, count);
    if (count > COUNT_OF(value)) {
        GOOD(MPI_T_pvar_handle_free(session, &handle));
        return;
    }
    started = MPI_T_pvar_start(session, handle);
    EQUAL(started, info.continuous ? MPI_T_ERR_PVAR_NO_STARTSTOP : MPI_SUCCESS);
    GOOD(MPI_T_pvar_read(session, handle, value));
    EQUAL(MPI_T_pvar_stop(session, handle), started);
    GOOD(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    GOOD(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    GOOD(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    EQUAL(MPI_T_pvar_reset(session, handle), info.readonly ? MPI_T_ERR_PVAR_NO_WRITE : MPI_SUCCESS);
    GOOD(MPI_T_pvar_read(session, handle, value));
    // Stopped and reset: a sum is zero and remains zero.
    int is_sum = info.class == MPI_T_PVAR_CLASS_COUNTER || info.class == MPI_T_PVAR_CLASS_AGGREGATE;
    if (is_sum && !info.readonly && !info.continuous && info.type == MPI_UNSIGNED_LONG_LONG) {
        CHECK(value[0] == 0, "%s is %llu after a reset", info.name, value[0]);
        value[0] = 77;
        GOOD(MPI_T_pvar_write(session, handle, value));
        GOOD(MPI_T_pvar_read(session, handle, again));
        EQUAL(again[0], 77);
        if (info.atomic) {
            GOOD(MPI_T_pvar_readreset(session, handle, again));
            EQUAL(again[0], 77);
            GOOD(MPI_T_pvar_read(session, handle, again));
            EQUAL(again[0], 0);
        }
    }
    if (info.readonly)
        EQUAL(MPI_T_pvar_write(session, handle, zero), MPI_T_ERR_PVAR_NO_WRITE);
    if (!info.atomic)
        CHECK(MPI_T_pvar_readreset(session, handle, again) != MPI_SUCCESS, "%s is not atomic", info.name);
    if (info.class == MPI_T_PVAR_CLASS_PERCENTAGE) {
        double share;
        memcpy(&share, value, sizeof share);
        CHECK(share >= 0 && share <= 1, "%s is %f", info.name, share);
    }
    GOOD(MPI_T_pvar_handle_free(session, &handle));
    CHECK(handle == MPI_T_PVAR_HANDLE_NULL, "%s: the handle is still there", info.name);
}

static void s15_3_7_each_variable_does_what_its_flags_say(void)
{
    MPI_T_pvar_session session = MPI_T_PVAR_SESSION_NULL;
    int num;
    GOOD(MPI_T_pvar_session_create(&session));
    CHECK(session != MPI_T_PVAR_SESSION_NULL, "%s", "no session");
    GOOD(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    GOOD(MPI_T_pvar_get_num(&num));
    for (int i = 0; i < num; i++)
        one_variable(session, i);
    GOOD(MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL, "%s", "the session is still there");
}

static void s15_3_7_wrong_handles_and_sessions_are_told(void)
{
    static struct info info;
    MPI_T_pvar_session one, two;
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    unsigned long long value[64];
    int num, index = -1, count;
    GOOD(MPI_T_pvar_get_num(&num));
    for (int i = 0; i < num && index < 0; i++) {
        ask(i, &info);
        if (info.bind == MPI_T_BIND_NO_OBJECT)
            index = i;
    }
    GOOD(MPI_T_pvar_session_create(&one));
    GOOD(MPI_T_pvar_session_create(&two));
    CHECK(one != two, "%s", "two sessions are one");
    EQUAL(MPI_T_pvar_handle_alloc(one, num, NULL, &handle, &count), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_pvar_handle_alloc(one, -1, NULL, &handle, &count), MPI_T_ERR_INVALID_INDEX);
    if (index >= 0) {
        GOOD(MPI_T_pvar_handle_alloc(one, index, NULL, &handle, &count));
        EQUAL(MPI_T_pvar_handle_alloc(MPI_T_PVAR_SESSION_NULL, index, NULL, &handle, &count), MPI_T_ERR_INVALID_SESSION);
        EQUAL(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, handle, value), MPI_T_ERR_INVALID_SESSION);
        EQUAL(MPI_T_pvar_read(two, handle, value), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_pvar_read(one, MPI_T_PVAR_HANDLE_NULL, value), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_pvar_read(one, MPI_T_PVAR_ALL_HANDLES, value), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_pvar_write(one, MPI_T_PVAR_ALL_HANDLES, value), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_pvar_readreset(one, MPI_T_PVAR_ALL_HANDLES, value), MPI_T_ERR_INVALID_HANDLE);
        CHECK(MPI_T_pvar_start(two, handle) == MPI_T_ERR_INVALID_HANDLE, "%s", "started in another session");
        CHECK(MPI_T_pvar_stop(two, handle) == MPI_T_ERR_INVALID_HANDLE, "%s", "stopped in another session");
        EQUAL(MPI_T_pvar_reset(two, handle), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_pvar_handle_free(two, &handle), MPI_T_ERR_INVALID_HANDLE);
        GOOD(MPI_T_pvar_handle_free(one, &handle));
        EQUAL(MPI_T_pvar_handle_free(one, &handle), MPI_T_ERR_INVALID_HANDLE);
    }
    GOOD(MPI_T_pvar_session_free(&one));
    GOOD(MPI_T_pvar_session_free(&two));
    EQUAL(MPI_T_pvar_session_free(&two), MPI_T_ERR_INVALID_SESSION);
}

// MPIT-111: every rank has the same variables under the same numbers, with the same words and properties.
static void s15_3_3_variables_are_the_same_on_all_ranks(void)
{
    static struct info here, there;
    int num, first;
    GOOD(MPI_T_pvar_get_num(&num));
    first = num;
    MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
    EQUAL(num, first);
    for (int i = 0; i < first; i++) {
        ask(i, &here);
        here.words = 0;
        there = here;
        MPI_Bcast(&there, (int)sizeof there, MPI_BYTE, 0, MPI_COMM_WORLD);
        CHECK(!memcmp(&here, &there, sizeof here), "%s is %s on rank 0", here.name, there.name);
    }
}

#define ALONE(function) (check_test = #function, function())

static void everything(void)
{
    ALONE(s15_3_7_each_variable_is_described);
    ALONE(s15_3_7_each_variable_does_what_its_flags_say);
    ALONE(s15_3_7_wrong_handles_and_sessions_are_told);
}

int main(int argc, char **argv)
{
    int provided;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    everything();
    start(&argc, &argv);
    everything();
    ALONE(s15_3_3_variables_are_the_same_on_all_ranks);
    MPI_Finalize();
    everything();
    GOOD(MPI_T_finalize());
    if (check_errors > 0) {
        fprintf(stderr, "rank %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    return 0;
}
