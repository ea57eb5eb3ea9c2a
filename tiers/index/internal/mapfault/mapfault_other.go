//go:build !linux || !(amd64 || arm64)

// Package mapfault keeps a process alive that writes to a memory-mapped file while the disk is full,
// on Linux with amd64 and arm64. Here it does nothing.
package mapfault

// Install does nothing.
func Install() error { return nil }

// Count returns 0.
func Count() uint64 { return 0 }
