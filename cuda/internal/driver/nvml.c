//go:build cuda

#define _GNU_SOURCE
#include "nvml.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct { unsigned int gpu, memory; } utilisation;
typedef struct { unsigned int pid; unsigned long long bytes; unsigned int instance, compute; } process;
typedef struct { void *device; unsigned long long type, data; unsigned int instance, compute; } event;

struct exo_nvml {
    void *lib, *device, *events;
    int (*shutdown)(void);
    int (*temperature)(void *, int, unsigned int *);
    int (*power)(void *, unsigned int *);
    int (*utilisation)(void *, utilisation *);
    int (*ecc)(void *, int, int, unsigned long long *);
    int (*throttle)(void *, unsigned long long *);
    int (*processes)(void *, unsigned int *, process *);
    int (*event_wait)(void *, event *, unsigned int);
    int (*event_free)(void *);
    int (*energy)(void *, unsigned long long *);
    int (*clock)(void *, int, unsigned int *);
    int (*generation)(void *, unsigned int *);
    int (*lanes)(void *, unsigned int *);
};

enum { TEMPERATURE_GPU = 0, CORRECTED = 0, UNCORRECTED = 1, VOLATILE = 0, XID = 8, CLOCK_SM = 1, CLOCK_MEMORY = 2 };

exo_nvml *exo_nvml_open(const char *name, const char *uuid, int *result)
{
    *result = -1;
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        return NULL;
    exo_nvml *n = calloc(1, sizeof *n);
    int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    int (*find)(const char *, void **) = (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByUUID");
    int (*event_create)(void **) = (int (*)(void **))dlsym(lib, "nvmlEventSetCreate");
    int (*event_register)(void *, unsigned long long, void *) = (int (*)(void *, unsigned long long, void *))dlsym(lib,
        "nvmlDeviceRegisterEvents");
    if (n == NULL || init == NULL || find == NULL || (*result = init()) != 0) {
        free(n);
        dlclose(lib);
        return NULL;
    }
    n->lib = lib;
    // What is missing in an old library stays NULL and is not asked.
    *(void **)&n->shutdown = dlsym(lib, "nvmlShutdown");
    *(void **)&n->temperature = dlsym(lib, "nvmlDeviceGetTemperature");
    *(void **)&n->power = dlsym(lib, "nvmlDeviceGetPowerUsage");
    *(void **)&n->utilisation = dlsym(lib, "nvmlDeviceGetUtilizationRates");
    *(void **)&n->ecc = dlsym(lib, "nvmlDeviceGetTotalEccErrors");
    *(void **)&n->throttle = dlsym(lib, "nvmlDeviceGetCurrentClocksThrottleReasons");
    *(void **)&n->processes = dlsym(lib, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&n->event_wait = dlsym(lib, "nvmlEventSetWait_v2");
    *(void **)&n->event_free = dlsym(lib, "nvmlEventSetFree");
    *(void **)&n->energy = dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    *(void **)&n->clock = dlsym(lib, "nvmlDeviceGetClockInfo");
    *(void **)&n->generation = dlsym(lib, "nvmlDeviceGetMaxPcieLinkGeneration");
    *(void **)&n->lanes = dlsym(lib, "nvmlDeviceGetMaxPcieLinkWidth");
    if ((*result = find(uuid, &n->device)) != 0) {
        exo_nvml_close(n);
        return NULL;
    }
    if (event_create != NULL && event_register != NULL && event_create(&n->events) == 0 && event_register(n->device,
        XID, n->events) != 0 && n->event_free != NULL) {
        n->event_free(n->events);
        n->events = NULL;
    }
    return n;
}

void exo_nvml_close(exo_nvml *n)
{
    if (n->events != NULL && n->event_free != NULL)
        n->event_free(n->events);
    if (n->shutdown != NULL)
        n->shutdown();
    dlclose(n->lib);
    free(n);
}

void exo_nvml_read(exo_nvml *n, int pid, exo_sensors *out)
{
    unsigned int v = 0;
    unsigned long long w = 0;
    utilisation u = {0, 0};
    *out = (exo_sensors){-1, -1, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1, {0}};
    if (n->temperature != NULL && n->temperature(n->device, TEMPERATURE_GPU, &v) == 0)
        out->temperature = v;
    if (n->power != NULL && n->power(n->device, &v) == 0)
        out->milliwatts = v;
    if (n->utilisation != NULL && n->utilisation(n->device, &u) == 0) {
        out->utilisation = u.gpu;
        out->memory_utilisation = u.memory;
    }
    if (n->ecc != NULL && n->ecc(n->device, CORRECTED, VOLATILE, &w) == 0)
        out->corrected = w;
    if (n->ecc != NULL && n->ecc(n->device, UNCORRECTED, VOLATILE, &w) == 0)
        out->uncorrected = w;
    if (n->throttle != NULL && n->throttle(n->device, &w) == 0)
        out->throttle = w;
    if (n->energy != NULL && n->energy(n->device, &w) == 0)
        out->millijoules = w;
    if (n->clock != NULL && n->clock(n->device, CLOCK_SM, &v) == 0)
        out->clock = v;
    if (n->clock != NULL && n->clock(n->device, CLOCK_MEMORY, &v) == 0)
        out->memory_clock = v;
    process list[128];
    v = 128;
    if (n->processes != NULL && n->processes(n->device, &v, list) == 0)
        for (unsigned int i = 0; i < v && i < 128; i++)
            if (list[i].pid == (unsigned int)pid && (long long)list[i].bytes >= 0)
                out->process_bytes = list[i].bytes;
    event e;
    while (n->events != NULL && n->event_wait != NULL && out->xids < 16 && n->event_wait(n->events, &e, 0) == 0)
        if (e.type == XID)
            out->xid[out->xids++] = (int)e.data;
}

void exo_nvml_link(exo_nvml *n, int *generation, int *lanes)
{
    unsigned int v = 0;
    *generation = *lanes = 0;
    if (n->generation != NULL && n->generation(n->device, &v) == 0)
        *generation = (int)v;
    if (n->lanes != NULL && n->lanes(n->device, &v) == 0)
        *lanes = (int)v;
}
