// The numbers of raster, from the Go constants of this package that say what each is.
// Written by: go test ./cuda/kernels -run TestRasterWordsAreCurrent -update
#pragma once

#define RASTER_F32 1u
#define RASTER_U32 2u
#define RASTER_U64 3u
#define RASTER_U8 4u
#define RASTER_BF16 5u
#define RASTER_I64 6u
#define RASTER_ABSENT 4294967295u
