//go:build cuda

package driver

// #include "supplement.h"
import "C"

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// classes maps every CUresult of CUDA 13 to the class of error that a caller acts on. A code that
// is not in it counts as sticky: the safe answer to an unknown failure is a new context.
var classes = map[C.CUresult]error{
	1: device.ErrInvalidArgument, // INVALID_VALUE
	2: device.ErrOutOfMemory,     // OUT_OF_MEMORY
	3: device.ErrNotSupported,    // NOT_INITIALIZED: there is no driver
	4: device.ErrLost,            // DEINITIALIZED
	5: device.ErrNotSupported,    // PROFILER_DISABLED
	6: device.ErrInvalidArgument, // PROFILER_NOT_INITIALIZED
	7: device.ErrInvalidArgument, // PROFILER_ALREADY_STARTED
	8: device.ErrInvalidArgument, // PROFILER_ALREADY_STOPPED

	34:  device.ErrNotSupported,    // STUB_LIBRARY
	46:  device.ErrTransient,       // DEVICE_UNAVAILABLE: in use by another process in exclusive mode
	100: device.ErrNotSupported,    // NO_DEVICE
	101: device.ErrInvalidArgument, // INVALID_DEVICE
	102: device.ErrNotSupported,    // DEVICE_NOT_LICENSED

	200: device.ErrNotSupported,    // INVALID_IMAGE
	201: device.ErrSticky,          // INVALID_CONTEXT
	202: device.ErrInvalidArgument, // CONTEXT_ALREADY_CURRENT
	205: device.ErrTransient,       // MAP_FAILED
	206: device.ErrTransient,       // UNMAP_FAILED
	207: device.ErrInvalidArgument, // ARRAY_IS_MAPPED
	208: device.ErrInvalidArgument, // ALREADY_MAPPED
	209: device.ErrNotSupported,    // NO_BINARY_FOR_GPU
	210: device.ErrInvalidArgument, // ALREADY_ACQUIRED
	211: device.ErrInvalidArgument, // NOT_MAPPED
	212: device.ErrInvalidArgument, // NOT_MAPPED_AS_ARRAY
	213: device.ErrInvalidArgument, // NOT_MAPPED_AS_POINTER
	214: device.ErrSticky,          // ECC_UNCORRECTABLE
	215: device.ErrNotSupported,    // UNSUPPORTED_LIMIT
	216: device.ErrInvalidArgument, // CONTEXT_ALREADY_IN_USE
	217: device.ErrNotSupported,    // PEER_ACCESS_UNSUPPORTED
	218: device.ErrNotSupported,    // INVALID_PTX
	219: device.ErrInvalidArgument, // INVALID_GRAPHICS_CONTEXT
	220: device.ErrSticky,          // NVLINK_UNCORRECTABLE
	221: device.ErrNotSupported,    // JIT_COMPILER_NOT_FOUND
	222: device.ErrNotSupported,    // UNSUPPORTED_PTX_VERSION
	223: device.ErrNotSupported,    // JIT_COMPILATION_DISABLED
	224: device.ErrNotSupported,    // UNSUPPORTED_EXEC_AFFINITY
	225: device.ErrNotSupported,    // UNSUPPORTED_DEVSIDE_SYNC
	226: device.ErrSticky,          // CONTAINED

	300: device.ErrInvalidArgument, // INVALID_SOURCE
	301: device.ErrNotSupported,    // FILE_NOT_FOUND
	302: device.ErrNotSupported,    // SHARED_OBJECT_SYMBOL_NOT_FOUND
	303: device.ErrNotSupported,    // SHARED_OBJECT_INIT_FAILED
	304: device.ErrTransient,       // OPERATING_SYSTEM

	400: device.ErrInvalidArgument, // INVALID_HANDLE
	401: device.ErrInvalidArgument, // ILLEGAL_STATE
	402: device.ErrInvalidArgument, // LOSSY_QUERY
	500: device.ErrNotSupported,    // NOT_FOUND
	600: device.ErrTransient,       // NOT_READY

	700: device.ErrSticky,          // ILLEGAL_ADDRESS
	701: device.ErrInvalidArgument, // LAUNCH_OUT_OF_RESOURCES
	702: device.ErrSticky,          // LAUNCH_TIMEOUT
	703: device.ErrInvalidArgument, // LAUNCH_INCOMPATIBLE_TEXTURING
	704: device.ErrInvalidArgument, // PEER_ACCESS_ALREADY_ENABLED
	705: device.ErrInvalidArgument, // PEER_ACCESS_NOT_ENABLED
	708: device.ErrInvalidArgument, // PRIMARY_CONTEXT_ACTIVE
	709: device.ErrSticky,          // CONTEXT_IS_DESTROYED
	710: device.ErrSticky,          // ASSERT
	711: device.ErrTransient,       // TOO_MANY_PEERS
	712: device.ErrInvalidArgument, // HOST_MEMORY_ALREADY_REGISTERED
	713: device.ErrInvalidArgument, // HOST_MEMORY_NOT_REGISTERED
	714: device.ErrSticky,          // HARDWARE_STACK_ERROR
	715: device.ErrSticky,          // ILLEGAL_INSTRUCTION
	716: device.ErrSticky,          // MISALIGNED_ADDRESS
	717: device.ErrSticky,          // INVALID_ADDRESS_SPACE
	718: device.ErrSticky,          // INVALID_PC
	719: device.ErrSticky,          // LAUNCH_FAILED
	720: device.ErrInvalidArgument, // COOPERATIVE_LAUNCH_TOO_LARGE
	721: device.ErrSticky,          // TENSOR_MEMORY_LEAK

	800: device.ErrNotSupported,    // NOT_PERMITTED
	801: device.ErrNotSupported,    // NOT_SUPPORTED
	802: device.ErrTransient,       // SYSTEM_NOT_READY
	803: device.ErrNotSupported,    // SYSTEM_DRIVER_MISMATCH
	804: device.ErrNotSupported,    // COMPAT_NOT_SUPPORTED_ON_DEVICE
	805: device.ErrTransient,       // MPS_CONNECTION_FAILED
	806: device.ErrTransient,       // MPS_RPC_FAILURE
	807: device.ErrTransient,       // MPS_SERVER_NOT_READY
	808: device.ErrTransient,       // MPS_MAX_CLIENTS_REACHED
	809: device.ErrTransient,       // MPS_MAX_CONNECTIONS_REACHED
	810: device.ErrSticky,          // MPS_CLIENT_TERMINATED
	811: device.ErrNotSupported,    // CDP_NOT_SUPPORTED
	812: device.ErrNotSupported,    // CDP_VERSION_MISMATCH
	900: device.ErrInvalidArgument, // STREAM_CAPTURE_UNSUPPORTED
	901: device.ErrInvalidArgument, // STREAM_CAPTURE_INVALIDATED
	902: device.ErrInvalidArgument, // STREAM_CAPTURE_MERGE
	903: device.ErrInvalidArgument, // STREAM_CAPTURE_UNMATCHED
	904: device.ErrInvalidArgument, // STREAM_CAPTURE_UNJOINED
	905: device.ErrInvalidArgument, // STREAM_CAPTURE_ISOLATION
	906: device.ErrInvalidArgument, // STREAM_CAPTURE_IMPLICIT
	907: device.ErrInvalidArgument, // CAPTURED_EVENT
	908: device.ErrInvalidArgument, // STREAM_CAPTURE_WRONG_THREAD
	909: device.ErrTransient,       // TIMEOUT
	910: device.ErrInvalidArgument, // GRAPH_EXEC_UPDATE_FAILURE
	911: device.ErrSticky,          // EXTERNAL_DEVICE
	912: device.ErrInvalidArgument, // INVALID_CLUSTER_SIZE
	913: device.ErrInvalidArgument, // FUNCTION_NOT_LOADED
	914: device.ErrInvalidArgument, // INVALID_RESOURCE_TYPE
	915: device.ErrInvalidArgument, // INVALID_RESOURCE_CONFIGURATION
	999: device.ErrSticky,          // UNKNOWN
}

// classOf is the class of a code that is not success.
func classOf(r C.CUresult) error {
	if class, ok := classes[r]; ok {
		return class
	}
	return device.ErrSticky
}

// callError is what a call of the driver failed with: what was tried, the driver's name of the
// failure, its class.
func callError(what string, r C.CUresult) error {
	return fmt.Errorf("%s: %s (%d): %w", what, C.GoString(C.exo_error_name(r)), int(r), classOf(r))
}

// codeOf is the CUresult inside an error of gorgonia.org/cu, whose type is an unexported integer.
func codeOf(err error) C.CUresult {
	for err != nil {
		if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
			return C.CUresult(v.Int())
		}
		err = errors.Unwrap(err)
	}
	return C.CUDA_ERROR_UNKNOWN
}

// fail turns the result of a driver call into an error, nil for success. A sticky one or a lost
// device breaks the device: it answers every further call with this error.
func (d *Device) fail(r C.CUresult, format string, args ...any) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	err := callError(fmt.Sprintf(format, args...)+" on "+d.props.Name, r)
	if errors.Is(err, device.ErrSticky) || errors.Is(err, device.ErrLost) {
		d.fall(err)
	}
	return err
}

// failCu is fail for a call through gorgonia.org/cu.
func (d *Device) failCu(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return d.fail(codeOf(err), format, args...)
}

// testCallError is callError for the package's tests, which cannot name C's types.
func testCallError(code int) error { return callError("test", C.CUresult(code)) }
