package remote

import (
	"errors"
	"strings"
	"testing"
)

// TestNoDriver: a scheme without a driver is an error that names the package to import. No driver is
// imported by this test.
func TestNoDriver(t *testing.T) {
	for _, scheme := range []string{"postgres", "sqlite", "odd"} {
		_, err := DatabaseDriver(scheme)
		if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "cpuagents/remote/drivers in package main") {
			t.Errorf("DatabaseDriver(%s): got %v, want the package to import", scheme, err)
		}
	}
}

// TestRegister: a scheme has one driver.
func TestRegister(t *testing.T) {
	RegisterDatabase("test", nil)
	defer func() {
		if recover() == nil {
			t.Error("a second driver replaces the first one")
		}
	}()
	RegisterDatabase("test", nil)
}
