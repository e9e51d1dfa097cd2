// SPDX-License-Identifier: MIT OR Apache-2.0
// Events of the tool information interface: properties that every set of events must have. MPI 5.0 sections 15.3.3,
// 15.3.8 and 15.3.9, before MPI_Init, between MPI_Init and MPI_Finalize, and after MPI_Finalize.
// MPIT-106, MPIT-119
#include "check.h"

enum { ROOM = 2048, MOST = 4096, ELEMENTS = 16 };

static const MPI_T_cb_safety levels[] = {MPI_T_CB_REQUIRE_NONE, MPI_T_CB_REQUIRE_MPI_RESTRICTED,
                                         MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE};

struct info {
    char name[ROOM], text[ROOM];
    int verbosity, bind, elements, name_room, text_room;
    MPI_Datatype types[ELEMENTS];
    MPI_Aint places[ELEMENTS];
    MPI_T_enum words;
};

static void ask(int index, struct info *info)
{
    MPI_Info hints = MPI_INFO_NULL;
    memset(info, 0, sizeof *info);
    info->name_room = info->text_room = ROOM;
    info->elements = ELEMENTS;
    GOOD(MPI_T_event_get_info(index, info->name, &info->name_room, &info->verbosity, info->types, info->places,
                              &info->elements, &info->words, &hints, info->text, &info->text_room, &info->bind));
    if (hints != MPI_INFO_NULL)
        GOOD(MPI_Info_free(&hints));
}

static int bytes_of(MPI_Datatype type)
{
    if (type == MPI_CHAR)
        return 1;
    if (type == MPI_INT || type == MPI_UNSIGNED || type == MPI_INT32_T || type == MPI_UINT32_T)
        return 4;
    if (type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG || type == MPI_COUNT || type == MPI_DOUBLE ||
        type == MPI_INT64_T || type == MPI_UINT64_T)
        return 8;
    return 0;
}

static void s15_3_8_each_event_is_described(void)
{
    static struct info first, again;
    static char names[MOST][ROOM];
    int num = -1, index;
    GOOD(MPI_T_event_get_num(&num));
    CHECK(num >= 10 && num < MOST, "%d events", num);
    for (int i = 0; i < num && i < MOST; i++) {
        ask(i, &first);
        ask(i, &again);
        CHECK(!memcmp(&first, &again, sizeof first), "event %d is told in two ways", i);
        EQUAL(first.name_room, strlen(first.name) + 1);
        CHECK(first.name_room > 1, "event %d has no name", i);
        CHECK(first.elements >= 1 && first.elements <= ELEMENTS, "%s has %d elements", first.name, first.elements);
        MPI_Aint end = 0;
        for (int j = 0; j < first.elements && j < ELEMENTS; j++) {
            int bytes = bytes_of(first.types[j]);
            CHECK(bytes > 0, "element %d of %s has another type", j, first.name);
            CHECK(first.places[j] >= end, "element %d of %s overlaps", j, first.name);
            EQUAL(first.places[j] % bytes, 0);
            end = first.places[j] + bytes;
        }
        if (first.words != MPI_T_ENUM_NULL) {
            int items = 0;
            GOOD(MPI_T_enum_get_info(first.words, &items, 0, 0));
            CHECK(items > 0, "the words of %s are none", first.name);
        }
        index = -1;
        GOOD(MPI_T_event_get_index(first.name, &index));
        EQUAL(index, i);
        strcpy(names[i], first.name);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(names[i], names[j]), "%s and another have one name", names[i]);
        GOOD(MPI_T_event_get_info(i, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    }
    EQUAL(MPI_T_event_get_index("no_such_event_at_all", &index), MPI_T_ERR_INVALID_NAME);
    EQUAL(MPI_T_event_get_index(NULL, &index), MPI_T_ERR_INVALID);
    EQUAL(MPI_T_event_get_info(num, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_event_get_info(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
}

// No more elements are written than there is room for; their true number is returned.
static void s15_3_8_arrays_of_elements_are_cut(void)
{
    static struct info info;
    ask(0, &info);
    for (int room = 0; room <= info.elements; room++) {
        MPI_Datatype types[ELEMENTS];
        MPI_Aint places[ELEMENTS];
        int elements = room;
        for (int j = 0; j < ELEMENTS; j++) {
            types[j] = MPI_DATATYPE_NULL;
            places[j] = -77;
        }
        GOOD(MPI_T_event_get_info(0, 0, 0, 0, types, places, &elements, 0, 0, 0, 0, 0));
        EQUAL(elements, info.elements);
        for (int j = 0; j < ELEMENTS; j++) {
            CHECK((types[j] != MPI_DATATYPE_NULL) == (j < room), "type %d of %d", j, room);
            CHECK((places[j] != -77) == (j < room), "displacement %d of %d", j, room);
        }
    }
    int elements = 0;
    GOOD(MPI_T_event_get_info(0, 0, 0, 0, NULL, NULL, &elements, 0, 0, 0, 0, 0));
    EQUAL(elements, info.elements);
}

static void s15_3_8_sources_have_clocks(void)
{
    int num = -1;
    GOOD(MPI_T_source_get_num(&num));
    CHECK(num >= 1, "%d sources", num);
    for (int i = 0; i < num; i++) {
        char name[ROOM], text[ROOM];
        int length = ROOM, other = ROOM;
        MPI_T_source_order order = -1;
        MPI_Count ticks = 0, most = 0, first = -1, second = -1;
        MPI_Info info = MPI_INFO_NULL;
        GOOD(MPI_T_source_get_info(i, name, &length, text, &other, &order, &ticks, &most, &info));
        CHECK(length == (int)strlen(name) + 1 && length > 1, "source %d: %s", i, name);
        EQUAL(other, strlen(text) + 1);
        CHECK(order == MPI_T_SOURCE_ORDERED || order == MPI_T_SOURCE_UNORDERED, "order %d", (int)order);
        CHECK(ticks > 0 && most > 0, "%lld ticks a second", (long long)ticks);
        GOOD(MPI_Info_free(&info));
        GOOD(MPI_T_source_get_timestamp(i, &first));
        GOOD(MPI_T_source_get_timestamp(i, &second));
        CHECK(first > 0 && second >= first && second <= most, "%lld after %lld", (long long)second, (long long)first);
        GOOD(MPI_T_source_get_info(i, 0, 0, 0, 0, 0, 0, 0, 0));
        EQUAL(MPI_T_source_get_timestamp(i, NULL), MPI_T_ERR_INVALID);
    }
    MPI_Count stamp;
    EQUAL(MPI_T_source_get_info(num, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_source_get_info(-1, 0, 0, 0, 0, 0, 0, 0, 0), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_source_get_timestamp(num, &stamp), MPI_T_ERR_INVALID_INDEX);
}

static int calls, frees;

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)instance, (void)registration, (void)safety, (void)data;
    calls++;
}

static void on_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)registration;
    CHECK(safety == levels[0] || safety == levels[1] || safety == levels[2] || safety == levels[3], "level %d", (int)safety);
    CHECK(data == &frees, "%p", data);
    frees++;
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *data)
{
    (void)count, (void)registration, (void)source, (void)safety, (void)data;
}

static void s15_3_8_handles_are_what_they_are(void)
{
    int num, value;
    MPI_T_event_registration handle = NULL, other = NULL, again = NULL;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Count stamp;
    GOOD(MPI_T_event_get_num(&num));
    EQUAL(MPI_T_event_handle_alloc(num, NULL, MPI_INFO_NULL, &handle), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_event_handle_alloc(-1, NULL, MPI_INFO_NULL, &handle), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, NULL), MPI_T_ERR_INVALID);
    GOOD(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &handle));
    GOOD(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_ENV, &other));
    CHECK(handle && other && handle != other, "%p and %p", (void *)handle, (void *)other);
    GOOD(MPI_T_event_handle_get_info(handle, &info));
    CHECK(info != MPI_INFO_NULL, "%s", "no info object");
    GOOD(MPI_T_event_handle_set_info(handle, info));
    EQUAL(MPI_T_event_callback_get_info(handle, levels[0], &info), MPI_T_ERR_INVALID);
    EQUAL(MPI_T_event_callback_set_info(handle, levels[0], info), MPI_T_ERR_INVALID);
    EQUAL(MPI_T_event_register_callback(handle, (MPI_T_cb_safety)7, MPI_INFO_NULL, 0, on_event), MPI_T_ERR_INVALID);
    for (int i = 0; i < COUNT_OF(levels); i++) {
        MPI_Info hints = MPI_INFO_NULL;
        GOOD(MPI_T_event_register_callback(handle, levels[i], info, 0, on_event));
        GOOD(MPI_T_event_callback_get_info(handle, levels[i], &hints));
        GOOD(MPI_T_event_callback_set_info(handle, levels[i], hints));
        GOOD(MPI_Info_free(&hints));
        GOOD(MPI_T_event_register_callback(handle, levels[i], info, 0, NULL));
        EQUAL(MPI_T_event_callback_get_info(handle, levels[i], &hints), MPI_T_ERR_INVALID);
    }
    GOOD(MPI_T_event_set_dropped_handler(handle, on_dropped));
    GOOD(MPI_T_event_set_dropped_handler(handle, NULL));
    frees = 0;
    GOOD(MPI_T_event_handle_free(handle, &frees, on_free));
    EQUAL(frees, 1);
    EQUAL(MPI_T_event_handle_free(handle, &frees, on_free), MPI_T_ERR_INVALID_HANDLE);
    EQUAL(frees, 1);
    GOOD(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &again));
    for (int i = 0; i < 2; i++) {
        // A freed handle, and NULL.
        MPI_T_event_registration none = i ? NULL : handle;
        EQUAL(MPI_T_event_handle_set_info(none, info), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_event_handle_get_info(none, &info), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_event_register_callback(none, levels[0], info, 0, on_event), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_event_callback_set_info(none, levels[0], info), MPI_T_ERR_INVALID_HANDLE);
        EQUAL(MPI_T_event_set_dropped_handler(none, on_dropped), MPI_T_ERR_INVALID_HANDLE);
    }
    GOOD(MPI_Info_free(&info));
    GOOD(MPI_T_event_handle_free(again, NULL, NULL));
    GOOD(MPI_T_event_handle_free(other, NULL, NULL));
    EQUAL(MPI_T_event_read(NULL, 0, &value), MPI_T_ERR_INVALID_HANDLE);
    EQUAL(MPI_T_event_copy(NULL, &value), MPI_T_ERR_INVALID_HANDLE);
    EQUAL(MPI_T_event_get_timestamp(NULL, &stamp), MPI_T_ERR_INVALID_HANDLE);
    EQUAL(MPI_T_event_get_source(NULL, &value), MPI_T_ERR_INVALID_HANDLE);
    EQUAL(calls, 0);
}

// Checks the length of a text: an absent text, and no other, has the length 1 (its NUL).
static void has_its_length(const char *what, int index, const char *text, int length)
{
    CHECK(length >= 1 && (length == 1) == (text[0] == 0), "%s %d: length %d of \"%s\"", what, index, length, text);
    EQUAL(strlen(text) + 1, length);
}

static void mpit_106_no_description_is_an_empty_one(void)
{
    static char text[4 * ROOM];
    int cvars, pvars, events, categories, sources, length;
    GOOD(MPI_T_cvar_get_num(&cvars));
    GOOD(MPI_T_pvar_get_num(&pvars));
    GOOD(MPI_T_event_get_num(&events));
    GOOD(MPI_T_category_get_num(&categories));
    GOOD(MPI_T_source_get_num(&sources));
#define EACH(what, count, call)                                                                    \
    for (int i = 0; i < (count); i++) {                                                            \
        memset(text, '#', sizeof text);                                                            \
        text[sizeof text - 1] = 0;                                                                 \
        length = sizeof text;                                                                      \
        GOOD(call);                                                                                \
        has_its_length(what, i, text, length);                                                     \
    }
    EACH("cvar", cvars, MPI_T_cvar_get_info(i, 0, 0, 0, 0, 0, text, &length, 0, 0))
    EACH("pvar", pvars, MPI_T_pvar_get_info(i, 0, 0, 0, 0, 0, 0, text, &length, 0, 0, 0, 0))
    EACH("event", events, MPI_T_event_get_info(i, 0, 0, 0, 0, 0, 0, 0, 0, text, &length, 0))
    EACH("category", categories, MPI_T_category_get_info(i, 0, 0, text, &length, 0, 0, 0))
    EACH("source", sources, MPI_T_source_get_info(i, 0, 0, text, &length, 0, 0, 0, 0))
}

typedef int members(int, int, int[]);
enum { CATEGORIES = 64, KINDS = 4 };
static members *const kinds[KINDS] = {MPI_T_category_get_cvars, MPI_T_category_get_pvars, MPI_T_category_get_events,
                                      MPI_T_category_get_categories};

struct lists {
    int stamp, categories, count[CATEGORIES][KINDS], list[CATEGORIES][KINDS][MOST / 8];
};

static void look(struct lists *lists)
{
    GOOD(MPI_T_category_changed(&lists->stamp));
    GOOD(MPI_T_category_get_num(&lists->categories));
    for (int i = 0; i < lists->categories && i < CATEGORIES; i++) {
        int *count = lists->count[i];
        GOOD(MPI_T_category_get_info(i, 0, 0, 0, 0, &count[0], &count[1], &count[3]));
        GOOD(MPI_T_category_get_num_events(i, &count[2]));
        for (int kind = 0; kind < KINDS; kind++)
            GOOD(kinds[kind](i, MOST / 8, lists->list[i][kind]));
    }
}

// Between two queries, members remain members at the same index, and an unchanged stamp means that nothing has changed.
static void mpit_119_members_stay_in_their_order(const struct lists *before, const struct lists *after)
{
    CHECK(after->categories >= before->categories && after->stamp >= before->stamp, "%d categories", after->categories);
    for (int i = 0; i < before->categories; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            int count = before->count[i][kind];
            CHECK(after->count[i][kind] >= count, "category %d lost a member", i);
            CHECK(before->stamp != after->stamp || after->count[i][kind] == count, "category %d grew unseen", i);
            CHECK(!memcmp(before->list[i][kind], after->list[i][kind], sizeof(int) * (size_t)count),
                  "the members of category %d have another order", i);
        }
}

static void s15_3_9_each_event_is_in_a_category(void)
{
    int num, categories, count, list[MOST / 8];
    GOOD(MPI_T_event_get_num(&num));
    GOOD(MPI_T_category_get_num(&categories));
    static int found[MOST];
    memset(found, 0, sizeof found);
    for (int i = 0; i < categories; i++) {
        GOOD(MPI_T_category_get_num_events(i, &count));
        list[count] = -77;
        GOOD(MPI_T_category_get_events(i, count, list));
        EQUAL(list[count], -77);
        for (int j = 0; j < count; j++)
            found[list[j]]++;
    }
    for (int i = 0; i < num; i++)
        EQUAL(found[i], 1);
    EQUAL(MPI_T_category_get_num_events(categories, &count), MPI_T_ERR_INVALID_INDEX);
    EQUAL(MPI_T_category_get_events(-1, 1, list), MPI_T_ERR_INVALID_INDEX);
}

static void s15_3_4_before_the_first_nothing_answers(void)
{
    int n = -7;
    MPI_Count stamp;
    MPI_T_event_registration handle;
    EQUAL(MPI_T_event_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_source_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_source_get_timestamp(0, &stamp), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &handle), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(MPI_T_category_get_num_events(0, &n), MPI_T_ERR_NOT_INITIALIZED);
    EQUAL(n, -7);
}

#define ALONE(function) (check_test = #function, function())

static void everything(void)
{
    ALONE(s15_3_8_each_event_is_described);
    ALONE(s15_3_8_arrays_of_elements_are_cut);
    ALONE(s15_3_8_sources_have_clocks);
    ALONE(s15_3_8_handles_are_what_they_are);
    ALONE(mpit_106_no_description_is_an_empty_one);
    ALONE(s15_3_9_each_event_is_in_a_category);
}

int main(int argc, char **argv)
{
    static struct lists before, within, after;
    int provided;
    MPI_T_event_registration handle;
    ALONE(s15_3_4_before_the_first_nothing_answers);
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    everything();
    look(&before);
    start(&argc, &argv);
    everything();
    look(&within);
    mpit_119_members_stay_in_their_order(&before, &within);
    MPI_Finalize();
    everything();
    look(&after);
    mpit_119_members_stay_in_their_order(&within, &after);
    // The last MPI_T_finalize frees the handles.
    GOOD(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &handle));
    GOOD(MPI_T_finalize());
    ALONE(s15_3_4_before_the_first_nothing_answers);
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    EQUAL(MPI_T_event_handle_free(handle, NULL, NULL), MPI_T_ERR_INVALID_HANDLE);
    GOOD(MPI_T_finalize());
    if (check_errors > 0) {
        fprintf(stderr, "rank %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    return 0;
}
