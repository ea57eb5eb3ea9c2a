package device_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// TestCheckPTX: arguments are compared with the .param list of the entry.
func TestCheckPTX(t *testing.T) {
	const text = `// a comment with .entry none(.param .u64 x)
.version 7.8
.target sm_70
.address_size 64
.visible .entry scale(
	.param .u64 scale_param_0, /* in */
	.param .u64 .ptr .global .align 4 scale_param_1,
	.param .f32 scale_param_2,
	.param .u32 scale_param_3,
	.param .u64 scale_param_4
)
.maxntid 256, 1, 1
{ ret; }
.visible .entry empty { ret; }
.entry none2() { ret; }
.entry packed(.param .align 8 .b8 packed_param_0[16]) { ret; }
.entry wide(.param .f64 wide_param_0) { ret; }
`
	p := func(kinds ...device.Kind) (params []device.Param) {
		for _, k := range kinds {
			params = append(params, device.Param{Kind: k})
		}
		return params
	}
	const buf, u32, i32, u64, f32 = device.KindBuffer, device.KindUint32, device.KindInt32, device.KindUint64,
		device.KindFloat32
	for _, c := range []struct {
		entry, text string
		params      []device.Param
		want        string // of the error; empty: none
	}{
		{"scale", text, p(buf, buf, f32, u32, u64), ""},
		{"scale", text, p(buf, buf, f32, i32, u64), ""},
		{"scale", text, p(u64, buf, f32, u32, u64), ""}, // a pointer is a number of 64 bits
		{"scale", text, p(buf, u64, f32, u32, u64), `parameter 1 is ".param .u64 .ptr .global .align 4 scale_param_1"`},
		{"scale", text, p(buf, buf, u32, u32, u64), "parameter 2"},
		{"scale", text, p(buf, buf, f32, u64, u64), "parameter 3"},
		{"scale", text, p(buf, buf, f32, u32), "5 parameters, 4 arguments"},
		{"scal", text, p(), "no such .entry"},
		{"none", text, p(buf), "no such .entry"},
		{"empty", text, p(), ""},
		{"none2", text, p(), ""},
		{"none2", text, p(buf), "0 parameters, 1 arguments"},
		{"packed", text, p(buf), "by value"},
		{"wide", text, p(f32), "use pointers"},
		{"scale", "__global__ void scale() {}", p(), ".version"},
		{"scale", text + "\x00", p(), "a byte of 0"},
		{"sc(ale", text, p(), "not the name"},
	} {
		err := device.CheckPTX(c.entry, c.text, c.params)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, device.ErrInvalidArgument) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %v: %v; want %q", c.entry, c.params, err, c.want)
		}
	}
}

// FuzzCheckPTX: no text makes CheckPTX panic.
func FuzzCheckPTX(f *testing.F) {
	f.Add("k", ".version 7.8\n.entry k(.param .u64 a)\n")
	f.Add("k", ".version 7.8\n.entry k(,)\n")
	f.Fuzz(func(_ *testing.T, name, text string) {
		_ = device.CheckPTX(name, text, []device.Param{{Kind: device.KindBuffer}})
	})
}
