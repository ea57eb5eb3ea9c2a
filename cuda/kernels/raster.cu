// raster reduces a variable of the units of a swarm, agents or groups, to a row of cells: cell i has the mean, the
// least and the greatest value of the units from (begin + i) * per on, and how many of them it counts. Left out are
// units of a page whose entry in frames is RASTER_ABSENT, values with a NaN or an infinity, and with votes units that
// have cast none. A cell without units is zeros.
//
// A warp makes a cell. Lane l adds the units l, l + 32, ... of the cell in this order, and lane 0 adds the sums of the
// lanes as a tree, so the bits depend neither on the launch shape nor on the device. See RasterArgs in raster.go.
#include "raster_words.cuh"

struct RasterVar {
    const unsigned char *pages;
    unsigned long long page_bytes;
    const unsigned *frames;
    unsigned offset, units, width, together, elem, first, count, votes;

    // Element i of the variable in a page.
    __device__ __forceinline__ float at(const unsigned char *page, unsigned long long i) const
    {
        switch (elem) {
        case RASTER_U32: return (float)((const unsigned *)page)[i];
        case RASTER_U64: return (float)((const unsigned long long *)page)[i];
        case RASTER_I64: return (float)((const long long *)page)[i];
        case RASTER_U8: return (float)page[i];
        case RASTER_BF16: return __uint_as_float((unsigned)((const unsigned short *)page)[i] << 16);
        }
        return ((const float *)page)[i];
    }

    // The value of a unit: the mean of count elements from element first on; false: the unit does not count.
    __device__ __forceinline__ bool value(unsigned unit, float *to) const
    {
        const unsigned number = unit / units, place = unit - number * units, frame = frames[number];
        if (frame == RASTER_ABSENT)
            return false;
        const unsigned char *page = pages + frame * page_bytes + offset;
        float sum = 0.0f;
        for (unsigned c = first; c < first + count; c++) {
            const unsigned long long i = together ? (unsigned long long)place * width + c
                                                  : (unsigned long long)c * units + place;
            const float v = at(page, i);
            if ((__float_as_uint(v) & 0x7f800000u) == 0x7f800000u)
                return false;
            sum += v;
        }
        if (votes) {
            if (sum == 0.0f)
                return false;
            sum -= 1.0f;
        } else if (count > 1) {
            sum /= (float)count;
        }
        *to = sum;
        return (__float_as_uint(sum) & 0x7f800000u) != 0x7f800000u;
    }
};

extern "C" __global__ void __launch_bounds__(256)
raster(const unsigned char *pages, unsigned long long page_bytes, const unsigned *frames, unsigned offset,
       unsigned units, unsigned width, unsigned together, unsigned elem, unsigned first, unsigned count,
       unsigned votes, unsigned n, unsigned per, unsigned begin, unsigned cells, float *values, unsigned *counts)
{
    const RasterVar var = {pages, page_bytes, frames, offset, units, width, together, elem, first, count, votes};
    const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (unsigned long long cell = (unsigned long long)blockIdx.x * warps + threadIdx.x / 32; cell < cells;
         cell += (unsigned long long)gridDim.x * warps) {
        const unsigned long long from = (begin + cell) * per, end = from + per < n ? from + per : n;
        float sum = 0.0f, least = __uint_as_float(0x7f800000u), most = __uint_as_float(0xff800000u);
        unsigned counted = 0;
#pragma unroll 4
        for (unsigned long long unit = from + lane; unit < end; unit += 32) {
            float v = 0.0f;
            if (!var.value((unsigned)unit, &v))
                continue;
            sum += v;
            if (v < least)
                least = v;
            if (v > most)
                most = v;
            counted++;
        }
        for (unsigned d = 16; d > 0; d /= 2) {
            const float s = __shfl_down_sync(0xffffffffu, sum, d), l = __shfl_down_sync(0xffffffffu, least, d),
                        m = __shfl_down_sync(0xffffffffu, most, d);
            const unsigned c = __shfl_down_sync(0xffffffffu, counted, d);
            sum += s;
            counted += c;
            if (l < least)
                least = l;
            if (m > most)
                most = m;
        }
        if (lane == 0) {
            // Sums beyond the largest float may be a NaN, whose bits differ by device.
            const float mean = counted ? sum / (float)counted : 0.0f;
            values[cell] = mean == mean ? mean : __uint_as_float(0x7fc00000u);
            values[(unsigned long long)cells + cell] = counted ? least : 0.0f;
            values[2ull * cells + cell] = counted ? most : 0.0f;
            counts[cell] = counted;
        }
    }
}
