// The NVIDIA driver, opened at run time. See libcuda.c.
#ifndef EXO_LIBCUDA_H
#define EXO_LIBCUDA_H

// exo_driver_init opens libcuda.so.1 and initialises it, once in the process. It returns a CUresult, or -1 where there
// is no driver library. Any thread may call it. The environment variable EXOSWARM_LIBCUDA names the library where it
// stands elsewhere.
int exo_driver_init(void);

#endif
