package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A message of a stranger is checked here before the Arrow library sees it: that library trusts the
// lengths inside the FlatBuffers metadata and allocates what they say, so that a message of a
// kilobyte can ask for terabytes, which ends the process and cannot be recovered. The check follows
// every offset once, bounds every length by the bytes that are there, and admits only what a batch
// is made of: one schema and one uncompressed record batch of flat columns and lists of fixed size.
// The encodings are described by the FlatBuffers internals page and by Arrow's Message.fbs and
// Schema.fbs, format version 1.5.

var (
	str      = FlatShape{Size: 1, Vector: true}
	keyValue = &FlatTable{Name: "KeyValue", Slots: []FlatShape{str, str}}
	metadata = FlatShape{Vector: true, Table: keyValue}

	field = &FlatTable{Name: "Field", Choose: map[byte]*FlatTable{
		2:  {Name: "Int", Slots: []FlatShape{{Size: 4}, {Size: 1}}},
		3:  {Name: "FloatingPoint", Slots: []FlatShape{{Size: 2}}},
		5:  {Name: "Utf8"},
		16: {Name: "FixedSizeList", Slots: []FlatShape{{Size: 4}}},
	}}
	schemaTable = &FlatTable{Name: "Schema", Slots: []FlatShape{
		{Size: 2},
		{Vector: true, Table: field},
		metadata,
		{Size: 8, Vector: true},
	}}
	// Slot 3 would be the compression: without a shape it is refused, so that no message unpacks to
	// more than it is.
	recordBatch = &FlatTable{
		Name:  "RecordBatch",
		Slots: []FlatShape{{Size: 8}, {Size: 16, Vector: true}, {Size: 16, Vector: true}},
	}
	message = &FlatTable{
		Name: "Message", Slots: []FlatShape{{Size: 2}, {Size: 1}, {Union: true}, {Size: 8}, metadata},
		Choose: map[byte]*FlatTable{1: schemaTable, 3: recordBatch},
	}
)

func init() { // Field contains Fields
	field.Slots = []FlatShape{str, {Size: 1}, {Size: 1}, {Union: true}, {}, {Vector: true, Table: field}, metadata}
}

// verify checks a whole stream: a schema, one record batch, and the end mark or the end of the
// bytes.
func verify(data []byte) error {
	want := []byte{1, 3} // the header types of Schema and RecordBatch
	for _, kind := range want {
		if len(data) < 8 || binary.LittleEndian.Uint32(data) != 0xFFFFFFFF {
			return errors.New("no Arrow message where one must start")
		}
		n := int64(binary.LittleEndian.Uint32(data[4:]))
		if n < 8 || n > int64(len(data)-8) {
			return fmt.Errorf("metadata of %d bytes in a message of %d", n, len(data))
		}
		v := NewFlatVerifier(data[8 : 8+n])
		pos, err := v.Root()
		if err != nil {
			return err
		}
		if err := v.Check(message, pos); err != nil {
			return err
		}
		if got := v.Byte(pos, 1); got != kind {
			return fmt.Errorf("message of type %d where type %d must be", got, kind)
		}
		data = data[8+n:]
		body := v.Int64(pos, 3)
		if body < 0 || body > int64(len(data)) {
			return fmt.Errorf("a body of %d bytes where %d are left", body, len(data))
		}
		data = data[body:]
	}
	return nil
}
