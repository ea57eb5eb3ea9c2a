// Package worker is the library that programs in C, C++, Rust and Python load: device memory,
// models and inferences behind handles. Command worker gives it the form of C; docs/worker.md
// describes it.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// HostDevice is the number of the host device. Where this program is built without CUDA, device 0
// is the host device too.
const HostDevice = -1

// Library has all that a process has made with the library. The zero value is valid. All methods
// may be called from several goroutines at once.
type Library struct {
	handles handles

	mu      sync.Mutex // held while a device is opened or closed
	devices map[int]*opened
}

// opened is a device that is open.
type opened struct {
	device.Device
	number int
	users  int  // contexts, and one for memory
	memory bool // Malloc or Info has used it: it stays open
}

// Devices returns the number of devices: of GPUs, or 1 where this program is built without CUDA.
func Devices() int {
	if !cuda.Built {
		return 1
	}
	n, err := cuda.Count()
	if err != nil {
		return 0
	}
	return n
}

// numbered returns the number of a device, one for each, and its name.
func numbered(number int) (int, string, error) {
	if number == HostDevice || number == 0 && !cuda.Built {
		return HostDevice, "host", nil
	}
	n := Devices()
	if n == 0 {
		_, err := cuda.Count()
		return 0, "", fmt.Errorf("device %d: %w: %w; the host device is %d", number, ErrNoDevice, err, HostDevice)
	}
	if number < 0 || number >= n {
		return 0, "", fmt.Errorf("device %d: %w: use 0 to %d, or %d for the host device", number, ErrDevice, n-1,
			HostDevice)
	}
	return number, fmt.Sprintf("cuda:%d", number), nil
}

// CheckDevice returns an ErrDevice or an ErrNoDevice unless there is a device of a number.
func CheckDevice(number int) error {
	_, _, err := numbered(number)
	return err
}

// acquire opens a device, unless it is open, and counts a user of it.
func (l *Library) acquire(ctx context.Context, number int) (*opened, error) {
	number, name, err := numbered(number)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.devices[number]
	if o == nil {
		opts := cuda.Options{Logger: slog.New(slog.DiscardHandler)}
		if dir, err := os.UserCacheDir(); err == nil {
			opts.CacheDir = filepath.Join(dir, "exoswarm", "kernels")
		}
		d, err := cuda.Open(ctx, name, opts)
		if err != nil {
			return nil, err
		}
		o = &opened{Device: d, number: number}
		if l.devices == nil {
			l.devices = map[int]*opened{}
		}
		l.devices[number] = o
	}
	o.users++
	return o, nil
}

// release takes back a call of acquire. The last one closes the device.
func (l *Library) release(o *opened) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.users--; o.users > 0 {
		return nil
	}
	delete(l.devices, o.number)
	return o.Close()
}

// forMemory returns a device for memory. It stays open: a program that allocates and frees one
// piece of memory in turn would open a GPU each time.
func (l *Library) forMemory(ctx context.Context, number int) (*opened, error) {
	o, err := l.acquire(ctx, number)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.memory {
		o.users-- // another user is there: memory
	}
	o.memory = true
	return o, nil
}

// free makes a handle invalid and closes its object. A handle of 0 is no error.
func free[T object](l *Library, handle uint64) error {
	if handle == 0 {
		return nil
	}
	o, err := take[T](&l.handles, handle)
	if err != nil {
		return err
	}
	return o.close(l)
}

// end closes an object with a life: when calls have ended, it closes what is a part of the object,
// and waits for parts that others close.
func (l *Library) end(of object, life *life) (err error) {
	life.end()
	for _, o := range l.handles.takeAll(func(o object) bool { return o.parent() == of }) {
		err = errors.Join(err, o.close(l))
	}
	life.parts.Wait()
	return err
}

// Close frees all that is left, and closes the devices. No other method may be called any more.
func (l *Library) Close() (err error) {
	for _, o := range l.handles.takeAll(func(object) bool { return true }) {
		err = errors.Join(err, o.close(l))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.devices {
		err = errors.Join(err, o.Close())
	}
	clear(l.devices)
	return err
}
