// SPDX-License-Identifier: MIT OR Apache-2.0
// The tool information interface: MPI 5.0 sections 15.3.1 to 15.3.6 and 15.3.9, before MPI_Init, between MPI_Init and
// MPI_Finalize, and after MPI_Finalize.
// MPIT-001..034, MPIT-045..064, MPIT-078..084, MPIT-085..105, MPIT-107..109, MPIT-112..114, MPIT-118, MPIT-120,
// MPIT-121, MPIT-124
#include "check.h"

enum { ROOM = 2048, MOST = 4096 };

static int is_in(int value, const int *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i] == value)
            return 1;
    return 0;
}

static void all_differ(const int *list, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(!is_in(list[i], list, i), "value %d occurs twice", list[i]);
}

static const int verbosities[] = {
    MPI_T_VERBOSITY_USER_BASIC,   MPI_T_VERBOSITY_USER_DETAIL,   MPI_T_VERBOSITY_USER_ALL,
    MPI_T_VERBOSITY_TUNER_BASIC,  MPI_T_VERBOSITY_TUNER_DETAIL,  MPI_T_VERBOSITY_TUNER_ALL,
    MPI_T_VERBOSITY_MPIDEV_BASIC, MPI_T_VERBOSITY_MPIDEV_DETAIL, MPI_T_VERBOSITY_MPIDEV_ALL,
};

static const int binds[] = {
    MPI_T_BIND_NO_OBJECT,      MPI_T_BIND_MPI_COMM,  MPI_T_BIND_MPI_DATATYPE, MPI_T_BIND_MPI_ERRHANDLER,
    MPI_T_BIND_MPI_FILE,       MPI_T_BIND_MPI_GROUP, MPI_T_BIND_MPI_OP,       MPI_T_BIND_MPI_REQUEST,
    MPI_T_BIND_MPI_WIN,        MPI_T_BIND_MPI_MESSAGE, MPI_T_BIND_MPI_INFO,
};

static const int scopes[] = {
    MPI_T_SCOPE_CONSTANT, MPI_T_SCOPE_READONLY, MPI_T_SCOPE_LOCAL,  MPI_T_SCOPE_GROUP,
    MPI_T_SCOPE_GROUP_EQ, MPI_T_SCOPE_ALL,      MPI_T_SCOPE_ALL_EQ,
};

static void s15_3_1_constants_differ_and_verbosities_rise(void)
{
    for (int i = 1; i < COUNT_OF(verbosities); i++)
        CHECK(verbosities[i - 1] < verbosities[i], "number %d does not rise", i);
    all_differ(binds, COUNT_OF(binds));
    all_differ(scopes, COUNT_OF(scopes));
    CHECK(MPI_T_PVAR_ALL_HANDLES != MPI_T_PVAR_HANDLE_NULL, "%s", "the two constants are one");
}

static void s15_3_10_error_classes_differ_and_are_no_codes_of_others(void)
{
    static const int classes[] = {
        MPI_SUCCESS,                 MPI_T_ERR_INVALID,          MPI_T_ERR_MEMORY,
        MPI_T_ERR_NOT_INITIALIZED,   MPI_T_ERR_CANNOT_INIT,      MPI_T_ERR_INVALID_INDEX,
        MPI_T_ERR_INVALID_ITEM,      MPI_T_ERR_INVALID_NAME,     MPI_T_ERR_INVALID_HANDLE,
        MPI_T_ERR_OUT_OF_HANDLES,    MPI_T_ERR_OUT_OF_SESSIONS,  MPI_T_ERR_INVALID_SESSION,
        MPI_T_ERR_CVAR_SET_NOT_NOW,  MPI_T_ERR_CVAR_SET_NEVER,   MPI_T_ERR_PVAR_NO_STARTSTOP,
        MPI_T_ERR_PVAR_NO_WRITE,     MPI_T_ERR_PVAR_NO_ATOMIC,
    };
    static const int others[] = {MPI_ERR_COMM, MPI_ERR_ARG, MPI_ERR_OTHER, MPI_ERR_INTERN, MPI_ERR_UNSUPPORTED_OPERATION};
    all_differ(classes, COUNT_OF(classes));
    for (int i = 1; i < COUNT_OF(classes); i++) {
        CHECK(classes[i] > 0 && classes[i] <= MPI_ERR_LASTCODE, "class %d", classes[i]);
        CHECK(!is_in(classes[i], others, COUNT_OF(others)), "class %d is another's", classes[i]);
    }
}

static void s15_3_4_before_the_first_and_after_the_last_nothing_answers(void)
{
    int n = -7, provided;
    EQUAL(MPI_T_cvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_pvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_category_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(n, -7);
    for (int round = 0; round < 2; round++) {
        GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
        GOOD(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
        CHECK(provided >= MPI_THREAD_SINGLE && provided <= MPI_THREAD_MULTIPLE, "level %d", provided);
        GOOD(MPI_T_finalize());
        GOOD(MPI_T_cvar_get_num(&n));
        GOOD(MPI_T_finalize());
        EQUAL(MPI_T_cvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
        EQUAL(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    }
}

struct info {
    char name[ROOM], text[ROOM];
    int verbosity, bind, scope, name_room, text_room;
    MPI_Datatype type;
    MPI_T_enum words;
};

static void ask(int index, struct info *info)
{
    memset(info, 0, sizeof *info);
    info->name_room = info->text_room = ROOM;
    GOOD(MPI_T_cvar_get_info(index, info->name, &info->name_room, &info->verbosity, &info->type, &info->words,
                             info->text, &info->text_room, &info->bind, &info->scope));
}

static int is_a_type(MPI_Datatype type)
{
    return type == MPI_INT || type == MPI_UNSIGNED || type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG ||
           type == MPI_COUNT || type == MPI_CHAR || type == MPI_DOUBLE || type == MPI_INT32_T || type == MPI_INT64_T ||
           type == MPI_UINT32_T || type == MPI_UINT64_T;
}

// The description of a variable is legal, the same each time, and found by its name.
static void s15_3_6_each_variable_is_described(void)
{
    static struct info first, again;
    static char names[MOST][ROOM];
    int num = -1, index;
    GOOD(MPI_T_cvar_get_num(&num));
    CHECK(num > 0 && num < MOST, "%d variables", num);
    for (int i = 0; i < num && i < MOST; i++) {
        ask(i, &first);
        ask(i, &again);
        CHECK(!memcmp(&first, &again, sizeof first), "variable %d is told in two ways", i);
        EQUAL(first.name_room, strlen(first.name) + 1);
        EQUAL(first.text_room, strlen(first.text) + 1);
        CHECK(first.name_room > 1, "variable %d has no name", i);
        CHECK(is_a_type(first.type), "%s has another type", first.name);
        CHECK(first.words == MPI_T_ENUM_NULL || first.type == MPI_INT, "%s has words and is no int", first.name);
        CHECK(is_in(first.verbosity, verbosities, COUNT_OF(verbosities)), "%s: %d", first.name, first.verbosity);
        CHECK(is_in(first.bind, binds, COUNT_OF(binds)), "%s: %d", first.name, first.bind);
        CHECK(is_in(first.scope, scopes, COUNT_OF(scopes)), "%s: %d", first.name, first.scope);
        index = -1;
        GOOD(MPI_T_cvar_get_index(first.name, &index));
        EQUAL(index, i);
        strcpy(names[i], first.name);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(names[i], names[j]), "%s and another have one name", names[i]);
    }
    index = -5;
    EQUAL(MPI_T_cvar_get_index("no_such_variable_at_all", &index), MPI_T_ERR_INVALID_NAME);
    EQUAL(MPI_T_cvar_get_info(num, 0, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_cvar_get_info(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
}

// Both strings, with buffers of all sizes.
static void s15_3_3_strings_are_cut_and_their_length_is_told(void)
{
    static struct info whole;
    char name[ROOM], text[ROOM];
    ask(0, &whole);
    for (int room = 0; room < whole.name_room + 3; room++) {
        int length = room, other = room;
        memset(name, '#', sizeof name);
        memset(text, '#', sizeof text);
        GOOD(MPI_T_cvar_get_info(0, name, &length, 0, 0, 0, text, &other, 0, 0));
        EQUAL(length, whole.name_room);
        EQUAL(other, whole.text_room);
        int fits = room < whole.name_room ? room : whole.name_room;
        EQUAL(name[fits], '#');
        if (fits > 0) {
            EQUAL(strlen(name), fits - 1);
            CHECK(!strncmp(name, whole.name, fits - 1), "%s", name);
        }
    }
    int length = 0;
    GOOD(MPI_T_cvar_get_info(0, NULL, &length, 0, 0, 0, NULL, NULL, 0, 0));
    EQUAL(length, whole.name_room);
    length = ROOM;
    GOOD(MPI_T_cvar_get_info(0, NULL, &length, 0, 0, 0, NULL, NULL, 0, 0));
    EQUAL(length, whole.name_room);
    name[0] = '#';
    GOOD(MPI_T_cvar_get_info(0, name, NULL, 0, 0, 0, NULL, NULL, 0, 0));
    EQUAL(name[0], '#');
    GOOD(MPI_T_cvar_get_info(0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

static void s15_3_5_words_have_values_and_names(void)
{
    static struct info info;
    int num, found = 0;
    GOOD(MPI_T_cvar_get_num(&num));
    for (int i = 0; i < num; i++) {
        ask(i, &info);
        if (info.words == MPI_T_ENUM_NULL)
            continue;
        int items = 0, length = ROOM, value, values[64];
        char name[ROOM], names[64][64];
        found++;
        GOOD(MPI_T_enum_get_info(info.words, &items, name, &length));
        CHECK(items >= 1 && items < 64, "%s has %d items", name, items);
        EQUAL(length, strlen(name) + 1);
        for (int item = 0; item < items && item < 64; item++) {
            length = sizeof names[item];
            GOOD(MPI_T_enum_get_item(info.words, item, &values[item], names[item], &length));
            CHECK(length > 1, "item %d has no name", item);
            for (int j = 0; j < item; j++)
                CHECK(strcmp(names[item], names[j]) && values[item] != values[j], "item %s is there twice", names[item]);
        }
        CHECK(MPI_T_enum_get_item(info.words, items, &value, 0, 0) != MPI_SUCCESS, "%s has more items", name);
        CHECK(MPI_T_enum_get_item(info.words, -1, &value, 0, 0) != MPI_SUCCESS, "%s has more items", name);
        GOOD(MPI_T_enum_get_info(info.words, 0, 0, 0));
    }
    CHECK(found > 0 || num == 0, "none of %d variables has words", num);
}

static size_t bytes_of(MPI_Datatype type, int count)
{
    size_t one = type == MPI_CHAR ? 1 : 8;
    if (type == MPI_INT || type == MPI_UNSIGNED || type == MPI_INT32_T || type == MPI_UINT32_T)
        one = 4;
    return one * (size_t)count;
}

// Reading a value does not write beyond its buffer; texts end within it.
static void s15_3_6_values_are_read(void)
{
    static struct info info;
    static char value[65536];
    int num;
    GOOD(MPI_T_cvar_get_num(&num));
    for (int i = 0; i < num; i++) {
        MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL, freed;
        int count = 0;
        ask(i, &info);
        if (info.bind != MPI_T_BIND_NO_OBJECT)
            continue;
        GOOD(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
        CHECK(handle != MPI_T_CVAR_HANDLE_NULL && count >= 1, "%s: count %d", info.name, count);
        size_t bytes = bytes_of(info.type, count);
        if (bytes >= sizeof value)
            continue;
        memset(value, '#', sizeof value);
        GOOD(MPI_T_cvar_read(handle, value));
        EQUAL(value[bytes], '#');
        if (info.type == MPI_CHAR)
            CHECK(memchr(value, 0, bytes), "%s does not end", info.name);
        freed = handle;
        GOOD(MPI_T_cvar_handle_free(&handle));
        CHECK(handle == MPI_T_CVAR_HANDLE_NULL, "%s: the handle is still there", info.name);
        EQUAL(MPI_T_cvar_handle_free(&handle), MPI_T_ERR_INVALID_HANDLE);
        (void)freed;
    }
    MPI_T_cvar_handle handle;
    int count;
    EQUAL(MPI_T_cvar_handle_alloc(num, NULL, &handle, &count), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_cvar_handle_alloc(-1, NULL, &handle, &count), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_cvar_read(MPI_T_CVAR_HANDLE_NULL, value), MPI_T_ERR_INVALID_HANDLE);
    EQUAL(MPI_T_cvar_write(MPI_T_CVAR_HANDLE_NULL, value), MPI_T_ERR_INVALID_HANDLE);
}

// Writes each variable's own value: a writable variable accepts it, the others return the right error, and no error
// handler is called.
static void write_all(int may_be_too_late)
{
    static struct info info;
    static char value[65536], again[65536];
    int num;
    GOOD(MPI_T_cvar_get_num(&num));
    for (int i = 0; i < num; i++) {
        MPI_T_cvar_handle handle;
        int count = 0;
        ask(i, &info);
        if (info.bind != MPI_T_BIND_NO_OBJECT)
            continue;
        GOOD(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
        size_t bytes = bytes_of(info.type, count);
        if (bytes < sizeof value) {
            memset(value, 0, sizeof value);
            memset(again, 0, sizeof again);
            GOOD(MPI_T_cvar_read(handle, value));
            int code = MPI_T_cvar_write(handle, value);
            if (info.scope == MPI_T_SCOPE_CONSTANT || info.scope == MPI_T_SCOPE_READONLY)
                EQUAL(code, MPI_T_ERR_CVAR_SET_NEVER);
            else if (code != MPI_SUCCESS || !may_be_too_late)
                EQUAL(code, may_be_too_late ? MPI_T_ERR_CVAR_SET_NOT_NOW : MPI_SUCCESS);
            GOOD(MPI_T_cvar_read(handle, again));
            CHECK(!memcmp(value, again, bytes), "%s changed", info.name);
        }
        GOOD(MPI_T_cvar_handle_free(&handle));
    }
}

static void s15_3_6_values_are_written_before_mpi_begins(void) { write_all(0); }

static void s15_3_6_too_late_is_an_error_that_is_not_fatal(void) { write_all(1); }

// Whether `from` contains `what`, through any number of categories between.
static int contains(int from, int what, int depth)
{
    int num = 0, list[256];
    GOOD(MPI_T_category_get_info(from, 0, 0, 0, 0, 0, 0, &num));
    CHECK(depth < 64, "%s", "categories are nested without end");
    if (depth >= 64 || num > COUNT_OF(list))
        return 0;
    GOOD(MPI_T_category_get_categories(from, num, list));
    for (int i = 0; i < num; i++)
        if (list[i] == what || contains(list[i], what, depth + 1))
            return 1;
    return 0;
}

typedef int members(int, int, int[]);

// Checks the list of members: as many as were reported, all in range; a short array is not written beyond its end.
static void list_of(members *get, int category, int num, int most)
{
    static int list[MOST], part[MOST];
    CHECK(num >= 0 && num < MOST, "%d members", num);
    if (num < 0 || num >= MOST)
        return;
    list[num] = -77;
    GOOD(get(category, num, list));
    EQUAL(list[num], -77);
    for (int i = 0; i < num; i++) {
        CHECK(list[i] >= 0 && list[i] < most, "member %d", list[i]);
        CHECK(!is_in(list[i], list, i), "member %d is there twice", list[i]);
    }
    for (int i = 0; i < num + 2; i++)
        part[i] = -77;
    GOOD(get(category, num / 2, part));
    for (int i = 0; i < num + 2; i++)
        CHECK(i < num / 2 ? is_in(part[i], list, num) : part[i] == -77, "place %d is %d", i, part[i]);
    GOOD(get(category, num + 2, part));
    CHECK(part[num] == -77 && part[num + 1] == -77, "%s", "more members than there are");
    GOOD(get(category, 0, part));
}

static void s15_3_9_categories_hold_what_they_say_and_no_circles(void)
{
    int num, cvars, pvars, before, after, index, first, second;
    char name[ROOM], text[ROOM];
    GOOD(MPI_T_category_changed(&before));
    GOOD(MPI_T_category_get_num(&num));
    GOOD(MPI_T_cvar_get_num(&cvars));
    GOOD(MPI_T_pvar_get_num(&pvars));
    for (int i = 0; i < num; i++) {
        int length = ROOM, other = ROOM, in[3] = {-1, -1, -1};
        GOOD(MPI_T_category_get_info(i, name, &length, text, &other, &in[0], &in[1], &in[2]));
        CHECK(length == (int)strlen(name) + 1 && length > 1, "category %d: %s", i, name);
        EQUAL(other, strlen(text) + 1);
        GOOD(MPI_T_category_get_index(name, &index));
        EQUAL(index, i);
        list_of(MPI_T_category_get_cvars, i, in[0], cvars);
        list_of(MPI_T_category_get_pvars, i, in[1], pvars);
        list_of(MPI_T_category_get_categories, i, in[2], num);
        CHECK(!contains(i, i, 0), "%s contains itself", name);
        GOOD(MPI_T_category_get_info(i, 0, 0, 0, 0, 0, 0, 0));
    }
    EQUAL(MPI_T_category_get_info(num, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_category_get_cvars(num, 1, &index), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_category_get_pvars(-1, 1, &index), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_category_get_categories(num, 1, &index), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_category_get_index("no_such_category_at_all", &index), MPI_T_ERR_INVALID_NAME);
    GOOD(MPI_T_category_changed(&after));
    CHECK(after >= before, "%d after %d", after, before);
    GOOD(MPI_T_category_get_num(&first));
    GOOD(MPI_T_category_get_num(&second));
    EQUAL(first, second);
}

#define ALONE(function) (check_test = #function, function())

static void everything(void)
{
    ALONE(s15_3_6_each_variable_is_described);
    ALONE(s15_3_3_strings_are_cut_and_their_length_is_told);
    ALONE(s15_3_5_words_have_values_and_names);
    ALONE(s15_3_6_values_are_read);
    ALONE(s15_3_9_categories_hold_what_they_say_and_no_circles);
}

int main(int argc, char **argv)
{
    int provided, before = 0, after = 0;
    ALONE(s15_3_1_constants_differ_and_verbosities_rise);
    ALONE(s15_3_10_error_classes_differ_and_are_no_codes_of_others);
    ALONE(s15_3_4_before_the_first_and_after_the_last_nothing_answers);
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    GOOD(MPI_T_cvar_get_num(&before));
    everything();
    ALONE(s15_3_6_values_are_written_before_mpi_begins);
    start(&argc, &argv);
    everything();
    ALONE(s15_3_6_too_late_is_an_error_that_is_not_fatal);
    MPI_Finalize();
    everything();
    GOOD(MPI_T_cvar_get_num(&after));
    CHECK(after >= before, "%d variables of %d are left", after, before);
    GOOD(MPI_T_finalize());
    EQUAL(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    if (check_errors > 0) {
        fprintf(stderr, "rank %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    return 0;
}
