//go:build cuda

// Package driver is the CUDA device: the contract of cuda/device over gorgonia.org/cu and, for what
// that lacks and for the hot calls, a thin supplement in C.
//
// Every file has the build tag cuda, and Linux on amd64 is the one platform it is made for. The
// binary starts without a driver: libcuda.so.1 is opened with the first device (libcuda.c says
// how), so a missing driver is an error of Open.
//
// Each open device has its own CUDA context. A context is current per OS thread while goroutines
// move between threads, so each call makes it current at its head: the C entries of the supplement
// by themselves, calls into gorgonia.org/cu inside Device.enter. After a sticky error the context
// is destroyed by Close, and Open makes a new one.
package driver
