// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP for C++: every class and function of qmp.hpp.
#include <qmp.hpp>

#include <cmath>
#include <cstring>

static int failures;

#define TRUE_THAT(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            std::fprintf(stderr, "%s:%d: %s: not true: %s (%s)\n", __FILE__, __LINE__, __func__, #condition, \
                         QMP_get_error_string(nullptr));                                           \
        }                                                                                          \
    } while (0)

static void qmpxx_003_qmpxx_005_qmpxx_006_qmpxx_007_qmpxx_008_the_machine()
{
    TRUE_THAT(QMP::isInitialized());
    TRUE_THAT(QMP::getMsgPassingType() == QMP_SWITCH);
    TRUE_THAT(QMP::getNumberOfNodes() == QMP_get_number_of_nodes());
    TRUE_THAT(QMP::getNodeNumber() == QMP_get_node_number());
    TRUE_THAT(QMP::isPrimaryNode() == (QMP::getNodeNumber() == 0));
}

static void qmpxx_009_qmpxx_010_qmpxx_011_no_grid_of_its_own()
{
    TRUE_THAT(QMP::getAllocatedNumberOfDimensions() == 0);
    TRUE_THAT(QMP::getAllocatedDimensions() == nullptr);
    TRUE_THAT(QMP::getAllocatedCoordinates() == nullptr);
}

static void qmpxx_012_qmpxx_013_qmpxx_014_qmpxx_015_qmpxx_016_qmpxx_017_qmpxx_018_a_topology()
{
    const int nodes = QMP::getNumberOfNodes(), wrong[1] = {nodes + 1}, dims[2] = {1, nodes};
    TRUE_THAT(!QMP::logicalTopologyIsDeclared());
    TRUE_THAT(!QMP::declareLogicalTopology(wrong, 1));
    TRUE_THAT(QMP::declareLogicalTopology(dims, 2));
    TRUE_THAT(QMP::logicalTopologyIsDeclared());
    TRUE_THAT(QMP::getLogicalNumberOfDimensions() == 2);
    TRUE_THAT(QMP::getLogicalDimensions()[1] == nodes);
    TRUE_THAT(QMP::getLogicalCoordinates()[1] == QMP::getNodeNumber());
    TRUE_THAT(QMP::getNodeNumberFrom(QMP::getLogicalCoordinates()) == QMP::getNodeNumber());
    TRUE_THAT(QMP::getLogicalCoordinatesFrom(nodes - 1)[1] == nodes - 1);
}

static void qmpxx_019_qmpxx_020_qmpxx_021_a_layout()
{
    int lattice[3] = {4, 2 * QMP::getNumberOfNodes(), 3};
    TRUE_THAT(QMP::layoutGrid(lattice, 3));
    TRUE_THAT(QMP::getSubgridDimensions()[1] == 2);
    TRUE_THAT(QMP::getNumberOfSubgridSites() == 24);
}

static void qmpxx_022_qmpxx_023_qmpxx_024_qmpxx_025_qmpxx_026_qmpxx_027_qmpxx_029_levels_and_output()
{
    TRUE_THAT(QMP::verbose(2) == 0 && QMP::verbose(0) == 2);
    TRUE_THAT(QMP::profcontrol(2) == 0 && QMP::profcontrol(0) == 2);
    TRUE_THAT(QMP::printf("to stdout, %d", 7) == 12);
    std::FILE *file = std::tmpfile();
    TRUE_THAT(QMP::fprintf(file, "%s%%", "100") == 4);
    std::rewind(file);
    char line[512] = "";
    TRUE_THAT(std::fgets(line, sizeof line, file) && std::strstr(line, ": 100%\n"));
    std::fclose(file);
    TRUE_THAT(QMP::info("an info, %d", 7) == 10);
    TRUE_THAT(QMP::error("an error, %d", 7) == 11);
    TRUE_THAT(std::strncmp(QMP::errorString(QMP_TIMEOUT), "QMP_TIMEOUT", 11) == 0);
}

static void qmpxx_030_qmpxx_031_qmpxx_032_qmpxx_033_qmpxx_034_qmpxx_035_sums()
{
    const int nodes = QMP::getNumberOfNodes();
    int i = 1;
    float x = 1, xs[2] = {1, 2};
    double y = 1, z = 1, ys[2] = {1, 2};
    TRUE_THAT(QMP::sumInt(&i) == QMP_SUCCESS && i == nodes);
    TRUE_THAT(QMP::sumFloat(&x) == QMP_SUCCESS && x == float(nodes));
    TRUE_THAT(QMP::sumDouble(&y) == QMP_SUCCESS && y == nodes);
    TRUE_THAT(QMP::sumDoubleExtended(&z) == QMP_SUCCESS && z == nodes);
    TRUE_THAT(QMP::sumFloatArray(xs, 2) == QMP_SUCCESS && xs[1] == float(2 * nodes));
    TRUE_THAT(QMP::sumDoubleArray(ys, 2) == QMP_SUCCESS && ys[1] == 2 * nodes);
}

static void qmpxx_036_qmpxx_037_qmpxx_038_qmpxx_039_qmpxx_040_qmpxx_041_extremes()
{
    const int node = QMP::getNodeNumber(), last = QMP::getNumberOfNodes() - 1;
    int i = node, j = node;
    float x = float(node), y = float(node);
    double u = node, v = node;
    TRUE_THAT(QMP::maxInt(&i) == QMP_SUCCESS && i == last);
    TRUE_THAT(QMP::minInt(&j) == QMP_SUCCESS && j == 0);
    TRUE_THAT(QMP::maxFloat(&x) == QMP_SUCCESS && x == float(last));
    TRUE_THAT(QMP::minFloat(&y) == QMP_SUCCESS && y == 0);
    TRUE_THAT(QMP::maxDouble(&u) == QMP_SUCCESS && u == last);
    TRUE_THAT(QMP::minDouble(&v) == QMP_SUCCESS && v == 0);
}

extern "C" {
static void add_pairs(void *inout, void *in)
{
    static_cast<long *>(inout)[0] += static_cast<long *>(in)[0];
    static_cast<long *>(inout)[1] += static_cast<long *>(in)[1];
}
}

static void qmpxx_042_qmpxx_043_qmpxx_044_qmpxx_045_qmpxx_053_other_global_operations()
{
    const int nodes = QMP::getNumberOfNodes();
    long pair[2] = {1, 10};
    QMP::QMP_binary_func function = add_pairs;
    TRUE_THAT(QMP::binaryReduction(pair, sizeof pair, function) == QMP_SUCCESS);
    TRUE_THAT(pair[0] == nodes && pair[1] == 10 * nodes);
    unsigned long bits = 6;
    TRUE_THAT(QMP::xorUlong(&bits) == QMP_SUCCESS && bits == (nodes % 2 ? 6 : 0));
    int value = QMP::getNodeNumber() + 5;
    TRUE_THAT(QMP::broadcast(&value, sizeof value) == QMP_SUCCESS && value == 5);
    TRUE_THAT(QMP::broadcast(&value, -1) == QMP_INVALID_ARG);
    TRUE_THAT(QMP::barrier() == QMP_SUCCESS);
}

static int next() { return (QMP::getNodeNumber() + 1) % QMP::getNumberOfNodes(); }
static int before() { return (QMP::getNodeNumber() + QMP::getNumberOfNodes() - 1) % QMP::getNumberOfNodes(); }

static void qmpxx_046_qmpxx_047_qmpxx_048_qmpxx_049_qmpxx_050_qmpxx_051_single_operations()
{
    enum { COUNT = 5000 };
    QMP::AlignedMemory from(COUNT * sizeof(int)), to(COUNT * sizeof(int), 128, QMP_MEM_FAST), none;
    TRUE_THAT(none.getBuffer() == nullptr);
    int *out = static_cast<int *>(from.getBuffer()), *in = static_cast<int *>(to.getBuffer());
    for (int i = 0; i < COUNT; i++)
        out[i] = QMP::getNodeNumber() * COUNT + i;
    QMP::MessageMemory send_memory(from), receive_memory;
    receive_memory.init(in, COUNT * int(sizeof(int)));
    QMP::SingleOperation send, receive;
    TRUE_THAT(send.declareSend(&send_memory, next()) == QMP_SUCCESS);
    TRUE_THAT(receive.declareReceive(&receive_memory, before(), QMP::DEFAULT_PRIORITY) == QMP_SUCCESS);
    TRUE_THAT(receive.start() == QMP_SUCCESS && send.start() == QMP_SUCCESS);
    QMP::MessageOperation *both[2] = {&send, &receive};
    TRUE_THAT(QMP::MessageOperation::waitAll(both, 2) == QMP_SUCCESS);
    TRUE_THAT(receive.isComplete() && receive.getErrorNumber() == QMP_SUCCESS);
    TRUE_THAT(std::strncmp(receive.getErrorString(), "QMP_SUCCESS", 11) == 0);
    for (int i = 0; i < COUNT; i++)
        TRUE_THAT(in[i] == before() * COUNT + i);
    QMP::SingleOperation wrong;
    TRUE_THAT(wrong.declareSend(&send_memory, -1) == QMP_NODE_OUTRANGE);
    TRUE_THAT(wrong.declareSend(&send_memory, 9, QMP::PLUS) == QMP_INVALID_ARG);
    TRUE_THAT(wrong.start() == QMP_BAD_MESSAGE);
}

static void qmpxx_001_qmpxx_052_multiple_operations_towards_neighbours()
{
    int out[4] = {QMP::getNodeNumber(), 0, QMP::getNodeNumber() + 100, 0}, in[2] = {-1, -1};
    QMP::MessageMemory up(out, sizeof(int)), down(out + 2, sizeof(int), 1, 8), from_below(in, sizeof(int));
    const void *bases[1] = {in + 1};
    std::size_t sizes[1] = {sizeof(int)};
    int blocks[1] = {1};
    std::ptrdiff_t strides[1] = {4};
    QMP::MessageMemory from_above(bases, sizes, blocks, strides, 1), moved(std::move(from_above));
    QMP::SingleOperation parts[2], more[2], *others[2] = {&more[0], &more[1]};
    TRUE_THAT(parts[0].declareReceive(&from_below, 1, QMP::MINUS) == QMP_SUCCESS);
    TRUE_THAT(parts[1].declareSend(&up, 1, QMP::PLUS, 0) == QMP_SUCCESS);
    TRUE_THAT(more[0].declareReceive(&moved, 1, QMP::PLUS) == QMP_SUCCESS);
    TRUE_THAT(more[1].declareSend(&down, 1, QMP::MINUS) == QMP_SUCCESS);
    QMP::MultiOperation first(parts, 2), second;
    second.init(others, 2);
    TRUE_THAT(first.start() == QMP_SUCCESS && second.start() == QMP_SUCCESS);
    while (!second.isComplete())
        ;
    TRUE_THAT(first.wait() == QMP_SUCCESS && second.wait() == QMP_SUCCESS);
    TRUE_THAT(in[0] == before() && in[1] == next() + 100);
    TRUE_THAT(first.getErrorNumber() == QMP_SUCCESS && first.getErrorString() != nullptr);
    TRUE_THAT(parts[0].start() == QMP_BAD_MESSAGE);
}

// In the document the signs are outside of the namespace, and can be computed.
static void qmpxx_001_signs_as_the_document_has_them()
{
    const SIGN up = PLUS, down = MINUS;
    TRUE_THAT(up == QMP::PLUS && down == QMP::MINUS);
    for (int sign = -1; sign <= 1; sign += 2) {
        int out = QMP::getNodeNumber(), in = -1;
        QMP::MessageMemory from(&out, sizeof out), to(&in, sizeof in);
        QMP::SingleOperation send, receive;
        TRUE_THAT(send.declareSend(&from, 1, sign, 0) == QMP_SUCCESS);
        TRUE_THAT(receive.declareReceive(&to, 1, -sign, QMP::DEFAULT_PRIORITY) == QMP_SUCCESS);
        TRUE_THAT(receive.start() == QMP_SUCCESS && send.start() == QMP_SUCCESS);
        TRUE_THAT(receive.wait() == QMP_SUCCESS && send.wait() == QMP_SUCCESS);
        TRUE_THAT(in == (sign > 0 ? before() : next()));
    }
    QMP::MessageMemory none;
    QMP::SingleOperation wrong;
    TRUE_THAT(wrong.declareSend(&none, 1, 2, 0) == QMP_INVALID_ARG);
}

static QMP::AlignedMemory filled(int value)
{
    QMP::AlignedMemory memory(sizeof value);
    *static_cast<int *>(memory.getBuffer()) = value;
    return memory;
}

// By value: the bytes exist as long as any copy.
static void qmpxx_047_messages_keep_the_memory_they_are_made_from()
{
    QMP::AlignedMemory in = filled(-1), again = in;
    TRUE_THAT(in.getBuffer() == again.getBuffer() && again.getNumberOfBytes() == sizeof(int));
    QMP::MessageMemory to = in, from = filled(QMP::getNodeNumber()), moved;
    moved = std::move(from);
    in = QMP::AlignedMemory();
    TRUE_THAT(in.getBuffer() == nullptr && in.getNumberOfBytes() == 0);
    QMP::SingleOperation send, receive;
    TRUE_THAT(send.declareSend(&moved, next()) == QMP_SUCCESS);
    TRUE_THAT(receive.declareReceive(&to, before()) == QMP_SUCCESS);
    TRUE_THAT(receive.start() == QMP_SUCCESS && send.start() == QMP_SUCCESS);
    TRUE_THAT(receive.wait() == QMP_SUCCESS && send.wait() == QMP_SUCCESS);
    TRUE_THAT(*static_cast<int *>(again.getBuffer()) == before());
}

int main(int argc, char **argv)
{
    QMP_thread_level_t provided;
    if (QMP::initialize(&argc, &argv, QMP_THREAD_SINGLE, &provided) != QMP_SUCCESS) // qmpxx_002
        return 1;
    if (argc > 1) {
        if (QMP::isPrimaryNode())
            QMP::abort(); // qmpxx_028
        QMP::barrier();
    }
    qmpxx_003_qmpxx_005_qmpxx_006_qmpxx_007_qmpxx_008_the_machine();
    qmpxx_009_qmpxx_010_qmpxx_011_no_grid_of_its_own();
    qmpxx_012_qmpxx_013_qmpxx_014_qmpxx_015_qmpxx_016_qmpxx_017_qmpxx_018_a_topology();
    qmpxx_019_qmpxx_020_qmpxx_021_a_layout();
    qmpxx_022_qmpxx_023_qmpxx_024_qmpxx_025_qmpxx_026_qmpxx_027_qmpxx_029_levels_and_output();
    qmpxx_030_qmpxx_031_qmpxx_032_qmpxx_033_qmpxx_034_qmpxx_035_sums();
    qmpxx_036_qmpxx_037_qmpxx_038_qmpxx_039_qmpxx_040_qmpxx_041_extremes();
    qmpxx_042_qmpxx_043_qmpxx_044_qmpxx_045_qmpxx_053_other_global_operations();
    qmpxx_046_qmpxx_047_qmpxx_048_qmpxx_049_qmpxx_050_qmpxx_051_single_operations();
    qmpxx_001_qmpxx_052_multiple_operations_towards_neighbours();
    qmpxx_001_signs_as_the_document_has_them();
    qmpxx_047_messages_keep_the_memory_they_are_made_from();
    QMP::finalize(); // qmpxx_004
    if (failures > 0 || QMP::isInitialized())
        return 1;
    std::puts("ok");
    return 0;
}
