// SPDX-License-Identifier: MIT OR Apache-2.0
//
// QMP for C++: namespace QMP over the functions of qmp.h. Header-only; C++11.
//
// Points that the document leaves open:
// - declareSend and declareReceive towards a neighbour take the sign as a SIGN, or as an int together with a priority. With an
//   int and no priority the call is the one for a node: two ints are its number and a priority.
// - maxInt and minInt have no function in C; they are binary reductions here.
// - Copies of an AlignedMemory share the same bytes, which are freed with the last copy; a MessageMemory made from one shares them
//   too. Other objects own their handles: they can be moved but not copied, and may outlive the objects they were made from.
#ifndef QMP_HPP
#define QMP_HPP

#include <qmp.h>

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

// As in the document, outside of the namespace; also accessible inside it.
enum SIGN { PLUS = 1, MINUS = -1 };

namespace QMP {

typedef ::QMP_binary_func QMP_binary_func;

using ::SIGN;
using ::PLUS;
using ::MINUS;
enum { DEFAULT_PRIORITY = 0 };

// Machine, topology, layout.

inline QMP_status_t initialize(int *argc, char ***argv, QMP_thread_level_t required,
                               QMP_thread_level_t *provided)
{
    return QMP_init_msg_passing(argc, argv, required, provided);
}
inline QMP_bool_t isInitialized(void) { return QMP_is_initialized(); }
inline void finalize(void) { QMP_finalize_msg_passing(); }
inline QMP_ictype_t getMsgPassingType(void) { return QMP_get_msg_passing_type(); }
inline int getNumberOfNodes(void) { return QMP_get_number_of_nodes(); }
inline int getNodeNumber(void) { return QMP_get_node_number(); }
inline QMP_bool_t isPrimaryNode(void) { return QMP_is_primary_node(); }
inline int getAllocatedNumberOfDimensions(void) { return QMP_get_allocated_number_of_dimensions(); }
inline const int *getAllocatedDimensions(void) { return QMP_get_allocated_dimensions(); }
inline const int *getAllocatedCoordinates(void) { return QMP_get_allocated_coordinates(); }
inline QMP_bool_t declareLogicalTopology(const int *dims, int ndim)
{
    return qmp2004_declare_logical_topology(dims, ndim);
}
inline QMP_bool_t logicalTopologyIsDeclared(void) { return QMP_logical_topology_is_declared(); }
inline int getLogicalNumberOfDimensions(void) { return QMP_get_logical_number_of_dimensions(); }
inline const int *getLogicalDimensions(void) { return QMP_get_logical_dimensions(); }
inline const int *getLogicalCoordinates(void) { return QMP_get_logical_coordinates(); }
inline int getNodeNumberFrom(const int *coor) { return QMP_get_node_number_from(coor); }
inline const int *getLogicalCoordinatesFrom(int nodenum)
{
    return qmp2004_get_logical_coordinates_from(nodenum);
}
inline QMP_bool_t layoutGrid(int *lattDim, int ndims) { return qmp2004_layout_grid(lattDim, ndims); }
inline const int *getSubgridDimensions(void) { return QMP_get_subgrid_dimensions(); }
inline int getNumberOfSubgridSites(void) { return QMP_get_number_of_subgrid_sites(); }

// Profiling, errors, output.

inline int verbose(int level) { return QMP_verbose(level); }
inline int profcontrol(int level) { return QMP_profcontrol(level); }
inline void abort(void) { qmp2004_abort(); }
inline const char *errorString(QMP_status_t code) { return QMP_error_string(code); }

namespace detail {

// A formatted text without the terminator; empty if the format is wrong.
inline std::vector<char> formatted(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    std::vector<char> text(length < 0 ? 1 : static_cast<std::size_t>(length) + 1);
    if (length >= 0)
        std::vsnprintf(text.data(), text.size(), format, arguments);
    return text;
}

} // namespace detail

#if defined(__GNUC__)
#define QMP_PRINTS_METHOD_(text, first) __attribute__((format(printf, text, first)))
#else
#define QMP_PRINTS_METHOD_(text, first)
#endif

QMP_PRINTS_METHOD_(1, 2) inline int printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const std::vector<char> text = detail::formatted(format, arguments);
    va_end(arguments);
    return QMP_printf("%s", text.data());
}

QMP_PRINTS_METHOD_(2, 3) inline int fprintf(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const std::vector<char> text = detail::formatted(format, arguments);
    va_end(arguments);
    return QMP_fprintf(stream, "%s", text.data());
}

QMP_PRINTS_METHOD_(1, 2) inline int info(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const std::vector<char> text = detail::formatted(format, arguments);
    va_end(arguments);
    return QMP_info("%s", text.data());
}

QMP_PRINTS_METHOD_(1, 2) inline int error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const std::vector<char> text = detail::formatted(format, arguments);
    va_end(arguments);
    return QMP_error("%s", text.data());
}

// Memory.

class AlignedMemory {
  public:
    AlignedMemory(void) : bytes_(0) {}
    explicit AlignedMemory(std::size_t nbytes, std::size_t alignment = sizeof(std::ptrdiff_t *),
                           int flags = QMP_MEM_DEFAULT)
        : mem_(QMP_allocate_aligned_memory(nbytes, alignment, flags), QMP_free_memory), bytes_(nbytes)
    {
    }

    // NULL if the allocation failed.
    void *getBuffer(void) const { return mem_ ? QMP_get_memory_pointer(mem_.get()) : nullptr; }
    std::size_t getNumberOfBytes(void) const { return mem_ ? bytes_ : 0; }

  private:
    std::shared_ptr<QMP_mem_t> mem_;
    std::size_t bytes_;
};

class MessageMemory {
  public:
    MessageMemory(void) : mem_(nullptr) {}
    MessageMemory(AlignedMemory am)
        : mem_(QMP_declare_msgmem(am.getBuffer(), am.getNumberOfBytes())), bytes_(std::move(am))
    {
    }
    MessageMemory(const void *buffer, std::size_t blksize, int nblocks = 1, std::ptrdiff_t stride = 0)
        : mem_(QMP_declare_strided_msgmem(const_cast<void *>(buffer), blksize, nblocks, stride))
    {
    }
    MessageMemory(const void **buffer, std::size_t *blksize, int *nblocks, std::ptrdiff_t *stride, int n)
        : mem_(declareArray(buffer, blksize, nblocks, stride, n))
    {
    }
    MessageMemory(const MessageMemory &) = delete;
    MessageMemory &operator=(const MessageMemory &) = delete;
    MessageMemory(MessageMemory &&other) noexcept : mem_(other.mem_), bytes_(std::move(other.bytes_))
    {
        other.mem_ = nullptr;
    }
    MessageMemory &operator=(MessageMemory &&other) noexcept
    {
        if (this != &other) {
            QMP_free_msgmem(mem_);
            mem_ = other.mem_;
            other.mem_ = nullptr;
            bytes_ = std::move(other.bytes_);
        }
        return *this;
    }
    ~MessageMemory(void) { QMP_free_msgmem(mem_); }

    void init(const void *buffer, int blksize, int nblocks = 1, int stride = 0)
    {
        QMP_free_msgmem(mem_);
        bytes_ = AlignedMemory();
        mem_ = blksize < 0 ? nullptr
                           : QMP_declare_strided_msgmem(const_cast<void *>(buffer),
                                                        static_cast<std::size_t>(blksize), nblocks, stride);
    }

    // NULL if the declaration failed.
    QMP_msgmem_t getHandle(void) const { return mem_; }

  private:
    static QMP_msgmem_t declareArray(const void **buffer, std::size_t *blksize, int *nblocks,
                                     std::ptrdiff_t *stride, int n)
    {
        std::vector<void *> bases;
        for (int i = 0; i < n; i++)
            bases.push_back(const_cast<void *>(buffer[i]));
#if QMP_API == 2004
        bases.push_back(nullptr);
        return QMP_declare_strided_array_msgmem(bases.data(), blksize, nblocks, stride);
#else
        return QMP_declare_strided_array_msgmem(bases.data(), blksize, nblocks, stride, n);
#endif
    }

    QMP_msgmem_t mem_;
    // The AlignedMemory it was made from, if any.
    AlignedMemory bytes_;
};

// Messages.

class MessageOperation {
  public:
    virtual ~MessageOperation(void) {}
    virtual QMP_status_t start(void) = 0;
    // QMP_TRUE once it is complete.
    virtual QMP_status_t isComplete(void) = 0;
    virtual QMP_status_t wait(void) = 0;
    virtual QMP_status_t getErrorNumber(void) const = 0;
    virtual const char *getErrorString(void) = 0;

    // Waits for all; returns the first error.
    static QMP_status_t waitAll(MessageOperation *ops[], int n)
    {
        QMP_status_t first = QMP_SUCCESS;
        for (int i = 0; i < n; i++) {
            const QMP_status_t status = ops[i]->wait();
            if (first == QMP_SUCCESS)
                first = status;
        }
        return first;
    }

  protected:
    MessageOperation(void) : handle_(nullptr) {}
    MessageOperation(const MessageOperation &) = delete;
    MessageOperation &operator=(const MessageOperation &) = delete;

    QMP_status_t doStart(void) { return QMP_start(handle_); }
    QMP_status_t doIsComplete(void) { return static_cast<QMP_status_t>(QMP_is_complete(handle_)); }
    QMP_status_t doWait(void) { return QMP_wait(handle_); }
    QMP_status_t doGetErrorNumber(void) const { return QMP_get_error_number(handle_); }
    const char *doGetErrorString(void) const { return QMP_get_error_string(handle_); }
    // Takes a handle over; returns the status of its declaration.
    QMP_status_t keep(QMP_msghandle_t handle)
    {
        const QMP_status_t status = handle ? QMP_SUCCESS : QMP_get_error_number(nullptr);
        reset();
        handle_ = handle;
        return status;
    }
    void reset(void)
    {
        if (handle_)
            QMP_free_msghandle(handle_);
        handle_ = nullptr;
    }

    QMP_msghandle_t handle_;
};

class SingleOperation : public MessageOperation {
  public:
    SingleOperation(void) {}
    ~SingleOperation(void) { reset(); }

    QMP_status_t declareSend(MessageMemory *mm, int dimension, SIGN sign, int priority = DEFAULT_PRIORITY)
    {
        return keep(QMP_declare_send_relative(mm->getHandle(), dimension, sign, priority));
    }
    QMP_status_t declareSend(MessageMemory *mm, int dimension, int sign, int priority)
    {
        return keep(QMP_declare_send_relative(mm->getHandle(), dimension, sign, priority));
    }
    QMP_status_t declareSend(MessageMemory *mm, int remoteHost, int priority = DEFAULT_PRIORITY)
    {
        return keep(QMP_declare_send_to(mm->getHandle(), remoteHost, priority));
    }
    QMP_status_t declareReceive(MessageMemory *mm, int dimension, SIGN sign, int priority = DEFAULT_PRIORITY)
    {
        return keep(QMP_declare_receive_relative(mm->getHandle(), dimension, sign, priority));
    }
    QMP_status_t declareReceive(MessageMemory *mm, int dimension, int sign, int priority)
    {
        return keep(QMP_declare_receive_relative(mm->getHandle(), dimension, sign, priority));
    }
    QMP_status_t declareReceive(MessageMemory *mm, int remoteHost, int priority = DEFAULT_PRIORITY)
    {
        return keep(QMP_declare_receive_from(mm->getHandle(), remoteHost, priority));
    }
    QMP_status_t start(void) override { return doStart(); }
    QMP_status_t isComplete(void) override { return doIsComplete(); }
    QMP_status_t wait(void) override { return doWait(); }
    QMP_status_t getErrorNumber(void) const override { return doGetErrorNumber(); }
    const char *getErrorString(void) override { return doGetErrorString(); }

  private:
    friend class MultiOperation;
};

// The operations it is made from become part of it and cannot be used any more.
class MultiOperation : public MessageOperation {
  public:
    MultiOperation(void) {}
    MultiOperation(SingleOperation *msgops, int nmsgops) { init(msgops, nmsgops); }
    MultiOperation(SingleOperation **msgops, int nmsgops) { init(msgops, nmsgops); }
    ~MultiOperation(void) { reset(); }

    void init(SingleOperation *msgops, int nmsgops)
    {
        std::vector<SingleOperation *> all;
        for (int i = 0; i < nmsgops; i++)
            all.push_back(&msgops[i]);
        init(all.data(), nmsgops);
    }
    void init(SingleOperation **msgops, int nmsgops)
    {
        std::vector<QMP_msghandle_t> handles;
        for (int i = 0; i < nmsgops; i++)
            handles.push_back(msgops[i]->handle_);
        const QMP_msghandle_t joined = QMP_declare_multiple(handles.data(), nmsgops);
        if (joined) {
            for (int i = 0; i < nmsgops; i++)
                msgops[i]->handle_ = nullptr;
        }
        keep(joined);
    }
    QMP_status_t start(void) override { return doStart(); }
    QMP_status_t isComplete(void) override { return doIsComplete(); }
    QMP_status_t wait(void) override { return doWait(); }
    QMP_status_t getErrorNumber(void) const override { return doGetErrorNumber(); }
    const char *getErrorString(void) override { return doGetErrorString(); }
};

// Global operations.

inline QMP_status_t sumInt(int *i) { return QMP_sum_int(i); }
inline QMP_status_t sumFloat(float *x) { return QMP_sum_float(x); }
inline QMP_status_t sumDouble(double *x) { return QMP_sum_double(x); }
inline QMP_status_t sumDoubleExtended(double *x) { return QMP_sum_double_extended(x); }
inline QMP_status_t sumFloatArray(float *x, int length) { return QMP_sum_float_array(x, length); }
inline QMP_status_t sumDoubleArray(double *x, int length) { return QMP_sum_double_array(x, length); }

namespace detail {

extern "C" {
inline void qmp_max_int_(void *inout, void *in)
{
    int *const a = static_cast<int *>(inout);
    const int b = *static_cast<int *>(in);
    *a = b > *a ? b : *a;
}
inline void qmp_min_int_(void *inout, void *in)
{
    int *const a = static_cast<int *>(inout);
    const int b = *static_cast<int *>(in);
    *a = b < *a ? b : *a;
}
}

} // namespace detail

inline QMP_status_t maxInt(int *i) { return QMP_binary_reduction(i, sizeof *i, detail::qmp_max_int_); }
inline QMP_status_t minInt(int *i) { return QMP_binary_reduction(i, sizeof *i, detail::qmp_min_int_); }
inline QMP_status_t maxFloat(float *x) { return QMP_max_float(x); }
inline QMP_status_t maxDouble(double *x) { return QMP_max_double(x); }
inline QMP_status_t minFloat(float *x) { return QMP_min_float(x); }
inline QMP_status_t minDouble(double *x) { return QMP_min_double(x); }
inline QMP_status_t binaryReduction(void *localvalue, std::size_t nbytes, QMP_binary_func funcptr)
{
    return QMP_binary_reduction(localvalue, nbytes, funcptr);
}
inline QMP_status_t xorUlong(unsigned long *lval) { return QMP_xor_ulong(lval); }
inline QMP_status_t broadcast(void *buf, int nbytes)
{
    return nbytes < 0 ? QMP_INVALID_ARG : QMP_broadcast(buf, static_cast<std::size_t>(nbytes));
}
inline QMP_status_t barrier(void) { return QMP_barrier(); }

} // namespace QMP

#endif
