//go:build !linux || !(amd64 || arm64)

package index

// InstallMapFault does nothing: the handler is for Linux with amd64 and arm64.
func InstallMapFault() error { return nil }

// MapFaults returns 0.
func MapFaults() uint64 { return 0 }
