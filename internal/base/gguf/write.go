package gguf

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// Pair is a key to write, with its value: a uint32, uint64, int32, float32, bool, string, []string,
// []float32 or []int32.
type Pair struct {
	Key   string
	Value any
}

// Values are a tensor to write.
type Values struct {
	Name  string
	Type  string    // F32 or Q8_0; rows of Q8_0 are multiples of 32 elements
	Shape []int64   // row-major, as in Tensor
	Of    []float32 // as many as Shape says
}

// Write writes a file of version 3 with the alignment 32, keys and tensors in the given order. It
// encodes a tensor at a time, and keeps nothing. What Open would refuse is an ErrValue.
func Write(w io.Writer, keys []Pair, tensors []Values) error {
	head := append([]byte(magic), 3, 0, 0, 0)
	head = little.AppendUint64(head, uint64(len(tensors)))
	head = little.AppendUint64(head, uint64(len(keys)))
	var err error
	for _, p := range keys {
		head = appendText(head, p.Key)
		if head, err = appendValue(head, p.Value); err != nil {
			return fmt.Errorf("write key %.100q: %w", p.Key, err)
		}
	}
	at := int64(0)
	for _, t := range tensors {
		n := int64(1)
		for _, d := range t.Shape {
			n *= d
		}
		number := map[string]uint32{quant.F32: 0, quant.Q8_0: 8}
		elements, bytes, _ := quant.Block(t.Type)
		of, known := number[t.Type]
		if !known || n != int64(len(t.Of)) || len(t.Shape) == 0 || t.Shape[len(t.Shape)-1]%elements != 0 {
			return fmt.Errorf("write tensor %.100q: %w: %d elements of shape %v and type %s: use F32, or Q8_0 with "+
				"rows of whole blocks", t.Name, ErrValue, len(t.Of), t.Shape, t.Type)
		}
		head = little.AppendUint32(appendText(head, t.Name), uint32(len(t.Shape)))
		for i := range t.Shape {
			head = little.AppendUint64(head, uint64(t.Shape[len(t.Shape)-1-i]))
		}
		head = little.AppendUint64(little.AppendUint32(head, of), uint64(at))
		at = padded(at + n/elements*bytes)
	}
	b := bufio.NewWriter(w)
	pad := func(n int64) { _, _ = b.Write(make([]byte, padded(n)-n)) } // Flush returns the error
	_, _ = b.Write(head)
	pad(int64(len(head)))
	for _, t := range tensors {
		data := make([]byte, 0, 4*len(t.Of))
		if t.Type == quant.Q8_0 {
			if data, err = quant.EncodeQ8(t.Of); err != nil {
				return fmt.Errorf("write tensor %s: %w", t.Name, err)
			}
		} else {
			for _, v := range t.Of {
				data = little.AppendUint32(data, math.Float32bits(v))
			}
		}
		_, _ = b.Write(data)
		pad(int64(len(data)))
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write a GGUF file: %w", err)
	}
	return nil
}

func padded(n int64) int64 { return (n + defaultAlign - 1) / defaultAlign * defaultAlign }

func appendText(b []byte, text string) []byte {
	return append(little.AppendUint64(b, uint64(len(text))), text...)
}

func appendType(b []byte, t Type) []byte { return little.AppendUint32(b, uint32(t)) }

func appendArray(b []byte, elem Type, n int) []byte {
	return little.AppendUint64(appendType(appendType(b, Array), elem), uint64(n))
}

func appendValue(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case uint32:
		return little.AppendUint32(appendType(b, Uint32), v), nil
	case uint64:
		return little.AppendUint64(appendType(b, Uint64), v), nil
	case int32:
		return little.AppendUint32(appendType(b, Int32), uint32(v)), nil
	case float32:
		return little.AppendUint32(appendType(b, Float32), math.Float32bits(v)), nil
	case bool:
		b = append(appendType(b, Bool), 0)
		if v {
			b[len(b)-1] = 1
		}
		return b, nil
	case string:
		return appendText(appendType(b, String), v), nil
	case []string:
		b = appendArray(b, String, len(v))
		for _, text := range v {
			b = appendText(b, text)
		}
	case []float32:
		b = appendArray(b, Float32, len(v))
		for _, x := range v {
			b = little.AppendUint32(b, math.Float32bits(x))
		}
	case []int32:
		b = appendArray(b, Int32, len(v))
		for _, x := range v {
			b = little.AppendUint32(b, uint32(x))
		}
	default:
		return nil, fmt.Errorf("%w: values of type %T are not written", ErrValue, value)
	}
	return b, nil
}
