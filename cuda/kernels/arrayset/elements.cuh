// Keys of elements: unsigned integers that have the order of the elements. The text before this file defines Element,
// Key, the unsigned integer of its size, and one of FLOATS, SIGNED and UNSIGNED.
#pragma once

#define ARRAY_TOP ((Key)1 << (8 * sizeof(Key) - 1))

union ArrayBits {
    Element v;
    Key k;
};

// array_bits_key is the key of an element that is no NaN, widened to 64 bits. The key of -0 is less than the key of 0.
__device__ __forceinline__ unsigned long long array_bits_key(Element v)
{
    ArrayBits b;
    b.v = v;
#if defined FLOATS
    return b.k & ARRAY_TOP ? (Key)~b.k : (Key)(b.k | ARRAY_TOP);
#elif defined SIGNED
    return b.k ^ ARRAY_TOP;
#else
    return b.k;
#endif
}

// array_sort_key is the key of an element for sorting. Both zeros have one key, and a NaN has the largest, also where
// the largest element comes first.
__device__ __forceinline__ Key array_sort_key(Element v, bool descending)
{
#ifdef FLOATS
    if (v != v)
        return ~(Key)0;
    if (v == 0)
        v = 0;
#endif
    const Key k = (Key)array_bits_key(v);
    return descending ? (Key)~k : k;
}
