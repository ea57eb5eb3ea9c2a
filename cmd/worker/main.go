//go:build cgo

// Command worker is the library libexoswarm_worker.so for programs in C, C++, Rust and Python, when
// it is built with -buildmode=c-shared: make worker. worker_cuda.h declares its functions,
// worker_cuda.c defines them, and exports.go is what they call.
package main

// #cgo CFLAGS: -Wall -Werror -fvisibility=hidden
import "C"

// main is never called: the library has none.
func main() {}
