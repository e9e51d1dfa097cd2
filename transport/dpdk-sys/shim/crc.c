// SPDX-License-Identifier: MIT OR Apache-2.0
// The CRC-32 of Ethernet over memory that is not copied. Rust must not create references to memory that the program may
// change meanwhile; this code reads it as a device does, and any result is a checksum of something.
//
// 64 bytes at a time are folded by carry-less multiplication: V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009, whose constants are used under their names.
#include "port.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define FOLDING __attribute__((target("pclmul,sse4.1")))

enum {
    FOLDED = 64,
    LANE = 16,
};

int rmpi_crc_is_fast(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

FOLDING static __m128i load(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

FOLDING static __m128i fold(__m128i lane, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Reduces 128 bits to the CRC register.
FOLDING static uint32_t reduce(__m128i lane)
{
    const __m128i k3k4 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i rest = _mm_xor_si128(_mm_srli_si128(lane, 8), _mm_clmulepi64_si128(lane, k3k4, 0x10));
    rest = _mm_xor_si128(_mm_srli_si128(rest, 4), _mm_clmulepi64_si128(_mm_and_si128(rest, low32), k5, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(rest, low32), polynomial, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(rest, quotient), 1);
}

// The CRC register after `bytes`, which are at least FOLDED, and a multiple of LANE.
FOLDING static uint32_t folded(uint32_t crc, const uint8_t *from, size_t bytes)
{
    const __m128i k1k2 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = load(from + i * LANE);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    for (from += FOLDED, bytes -= FOLDED; bytes >= FOLDED; from += FOLDED, bytes -= FOLDED)
        for (int i = 0; i < 4; i++)
            lanes[i] = fold(lanes[i], k1k2, load(from + i * LANE));
    __m128i lane = lanes[0];
    for (int i = 1; i < 4; i++)
        lane = fold(lane, k3k4, lanes[i]);
    for (; bytes >= LANE; from += LANE, bytes -= LANE)
        lane = fold(lane, k3k4, load(from));
    return reduce(lane);
}

static size_t fold_first(uint32_t *crc, const uint8_t *from, size_t bytes)
{
    size_t first = bytes & ~(size_t)(LANE - 1);
    if (first < FOLDED)
        return 0;
    *crc = folded(*crc, from, first);
    return first;
}

#else

int rmpi_crc_is_fast(void)
{
    return 0;
}

static size_t fold_first(uint32_t *crc, const uint8_t *from, size_t bytes)
{
    (void)crc, (void)from, (void)bytes;
    return 0;
}

#endif

// As zlib's crc32: continues from the checksum of the bytes before.
uint32_t rmpi_crc(uint32_t crc, const uint8_t *from, size_t bytes)
{
    crc = ~crc;
    size_t first = rmpi_crc_is_fast() ? fold_first(&crc, from, bytes) : 0;
    for (size_t i = first; i < bytes; i++) {
        crc ^= from[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}
