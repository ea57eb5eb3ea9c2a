// NVML, the management library of the driver, opened at run time. Its few types are written out here, so that building
// needs no nvml.h.
#ifndef EXO_NVML_H
#define EXO_NVML_H

typedef struct exo_nvml exo_nvml;

// exo_sensors is what NVML says of one GPU; -1 for what it does not.
typedef struct {
    int temperature, milliwatts, utilisation, memory_utilisation, clock, memory_clock, xids;
    long long corrected, uncorrected, throttle, process_bytes, millijoules;
    int xid[16];
} exo_sensors;

// exo_nvml_open opens the library under a name, starts it and finds a GPU by its UUID; NULL when that fails, and
// *result is then NVML's code, or -1 without a library. The caller closes it.
exo_nvml *exo_nvml_open(const char *name, const char *uuid, int *result);
void exo_nvml_close(exo_nvml *n);

// exo_nvml_read asks for everything. One thread at a time.
void exo_nvml_read(exo_nvml *n, int pid, exo_sensors *out);

// exo_nvml_link asks for the fastest link to the host that the GPU and its slot have together; 0 for what NVML does not
// say.
void exo_nvml_link(exo_nvml *n, int *generation, int *lanes);

#endif
