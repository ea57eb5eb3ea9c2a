// An NVML for tests: one GPU that is hot, held down, and has had an Xid and a memory error.
#include <string.h>

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)1;
    return strncmp(uuid, "GPU-", 4) == 0 ? 0 : 6;
}
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *t) { (void)d; *t = 91; return sensor; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { (void)d; *mw = 654321; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned u[2]) { (void)d; u[0] = 97, u[1] = 45; return 0; }
int nvmlDeviceGetTotalEccErrors(void *d, int uncorrected, int counter, unsigned long long *n) {
    (void)d;
    *n = uncorrected ? 2 : 30;
    return counter;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) {
    (void)d;
    *r = 0x1 | 0x4 | 0x40;
    return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *mj)
{
    static unsigned long long used = 123456788;
    (void)d;
    *mj = ++used;
    return 0;
}
int nvmlDeviceGetClockInfo(void *d, int type, unsigned *mhz) {
    (void)d;
    *mhz = type == 1 ? 1980 : type == 2 ? 2619 : 1;
    return 0;
}
int nvmlEventSetCreate(void **set) { *set = (void *)2; return 0; }
int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *set) {
    (void)d, (void)set;
    return types == 8 ? 0 : 2;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *v) { (void)d; *v = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *v) { (void)d; *v = 16; return 0; }
int nvmlEventSetFree(void *set) { (void)set; return 0; }

int nvmlEventSetWait_v2(void *set, struct { void *device; unsigned long long type, data; unsigned a, b; } *e,
    unsigned ms)
{
    static int told;
    (void)set, (void)ms;
    if (told++)
        return 10;
    e->type = 8;
    e->data = 63;
    return 0;
}
