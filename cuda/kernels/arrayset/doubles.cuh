// Doubles as the 64 bits that arguments and tables have.
#pragma once

union ArrayDouble {
    double v;
    unsigned long long bits;
};

__device__ __forceinline__ unsigned long long array_double_bits(double v)
{
    ArrayDouble d;
    d.v = v;
    return d.bits;
}

__device__ __forceinline__ double array_double(unsigned long long bits)
{
    ArrayDouble d;
    d.bits = bits;
    return d.v;
}
