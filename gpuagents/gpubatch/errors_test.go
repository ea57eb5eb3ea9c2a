package gpubatch

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// TestMark: errors of devices are marked once, and no others are.
func TestMark(t *testing.T) {
	if err := Mark(nil); err != nil {
		t.Errorf("Mark: %v, want no error", err)
	}
	if err := Mark(io.EOF); !errors.Is(err, io.EOF) || errors.Is(err, ErrDevice) {
		t.Errorf("an error of another package becomes %v", err)
	}
	once := Mark(fmt.Errorf("copy: %w", device.ErrLost))
	if !errors.Is(once, ErrDevice) || !errors.Is(once, device.ErrLost) {
		t.Errorf("%v is not marked", once)
	}
	if twice := Mark(once); twice.Error() != once.Error() {
		t.Errorf("%v is marked again", twice)
	}
}

// TestClassOf: the most specific class wins, and errors of other packages have none.
func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{io.EOF, ""},
		{ErrDevice, ClassOther},
		{Mark(device.ErrInvalidArgument), ClassOther},
		{Mark(device.ErrOutOfMemory), ClassMemory},
		{Mark(device.ErrTimeout), ClassTimeout},
		{device.ErrTransient, ClassTransient},
		{device.ErrSticky, ClassBroken},
		{device.ErrRestart, ClassBroken},
		{errors.Join(Mark(device.ErrOutOfMemory), device.ErrLost), ClassBroken},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("%v is of class %q, want %q", c.err, got, c.want)
		}
	}
}
