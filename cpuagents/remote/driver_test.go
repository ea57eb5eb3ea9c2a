package remote

import (
	"errors"
	"strings"
	"testing"
)

// TestNoDriver: a scheme without a driver is an error that names the package to import. No driver is
// imported by this test.
func TestNoDriver(t *testing.T) {
	for scheme, name := range map[string]string{"s3": "cloud", "gs": "cloud"} {
		_, err := OpenStore("a store", scheme+"://bucket/prefix", StoreSpec{}, MaxListBytes, nil, nil)
		if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "cpuagents/remote/"+name+" in package main") {
			t.Errorf("OpenStore(%s): got %v, want the name of package %s", scheme, err, name)
		}
	}
	for scheme, says := range map[string]string{
		"postgres": "cpuagents/remote/postgres in", "sqlite": "cpuagents/remote/sqlite in", "odd": "registration",
	} {
		_, err := DatabaseDriver(scheme)
		if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), says) {
			t.Errorf("DatabaseDriver(%s): got %v, want %q", scheme, err, says)
		}
	}
}

// TestRegister: a scheme has one driver.
func TestRegister(t *testing.T) {
	RegisterStore("test", nil)
	defer func() {
		if recover() == nil {
			t.Error("a second driver replaces the first one")
		}
	}()
	RegisterStore("test", nil)
}
