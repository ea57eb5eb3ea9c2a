// The numbers of the fusion kernels, from the Go constants of this package that say what each is.
// Written by: go test ./cuda/kernels -run TestFuseWordsAreCurrent -update
#define FUSE_TICKET 0
#define FUSE_FUSED 1
#define FUSE_REFUSED 2
#define FUSE_NOBODY 3
#define FUSE_INVALID 4
#define FUSE_WEIGHT 5
#define FUSE_WORDS 6
#define FUSE_ORDER 1
#define FUSE_WEIGHTED 2
#define FUSE_PARTS 4
#define FUSE_FRESH 8
#define FUSE_FIRST 16
#define FUSE_LAST 32
#define FUSE_ONE 65536
#define FUSE_RUN_PART 1
#define FUSE_MAX_BLOCK 256
#define FUSE_TILE 2048
#define FUSE_SLOTS 4096
#define FUSE_SHARE 64
#define FUSE_NO_SLOT 0xffff
#define FUSE_HEAD 0x80000000u
#define NO_NODE 0xffffffffu
