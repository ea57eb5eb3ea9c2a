package rows

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/internal/base/flatbuf"
)

// arrowFooter is the table at the end of an Arrow IPC file, as of Arrow's File.fbs.
var arrowFooter = &flatbuf.Table{Name: "Footer", Slots: []flatbuf.Shape{
	{Size: 2}, {Table: arrowMessage.Choose[1]}, {Size: 24, Vector: true}, {Size: 24, Vector: true}, arrowMetadata,
}}

const (
	arrowMagic = "ARROW1"
	arrowBegin = 8  // bytes before the first message of a file
	arrowEnd   = 10 // bytes behind the footer: its length and the mark
)

// footerSchema returns the message of the schema of an Arrow IPC file that has its schema only in
// the footer, as Arrow JS writes files. Then the file is after its opening mark. For any other file
// it returns nothing, and the file is at its beginning.
func footerSchema(name string, f *os.File) (message []byte, err error) {
	defer damaged(name, &err)
	if only, err := schemaIsLast(f); err != nil || !only {
		_, serr := f.Seek(0, io.SeekStart)
		if serr != nil {
			return nil, fault.IO("read", name, serr)
		}
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fault.IO("read", name, err)
	}
	var end [arrowEnd]byte
	if _, err := f.ReadAt(end[:], size-arrowEnd); err != nil || string(end[4:]) != arrowMagic {
		return nil, fault.Input(
			"%s: the Arrow file has neither a schema at its beginning nor a footer: it is cut off", name,
		)
	}
	// The length stands before the closing mark. It is compared with the file before anything of
	// its size is allocated.
	n := int64(binary.LittleEndian.Uint32(end[:]))
	if n < 8 || n > maxArrowMetadata || n > size-arrowEnd-arrowBegin {
		return nil, fault.Input("%s: the Arrow file has a footer of %d bytes in %d", name, n, size)
	}
	footer := make([]byte, n)
	if _, err := f.ReadAt(footer, size-arrowEnd-n); err != nil {
		return nil, fault.IO("read", name, err)
	}
	v := flatbuf.New(footer) // before the library sees it
	pos, err := v.Root()
	if err == nil {
		err = v.Check(arrowFooter, pos)
	}
	if err != nil {
		return nil, fault.Input(
			"%s: the footer is not that of a table of flat columns (%v): write it without dictionaries, views and "+
				"nested columns",
			name, err,
		)
	}
	r, err := ipc.NewFileReader(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// The library writes the schema as a stream would begin, so the rest of the file can follow as
	// a stream.
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(r.Schema())).Close(); err != nil {
		return nil, err
	}
	if _, err := f.Seek(arrowBegin, io.SeekStart); err != nil {
		return nil, fault.IO("read", name, err)
	}
	return b.Bytes()[:b.Len()-8], nil // without the end mark
}

// schemaIsLast reports whether the first message of an Arrow IPC file is not its schema. It leaves
// the position of the file as it is. It returns false for a damaged file, whose reader reports the
// damage.
func schemaIsLast(f *os.File) (bool, error) {
	var head [arrowBegin + 8]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) || string(head[:len(arrowMagic)]) != arrowMagic ||
		binary.LittleEndian.Uint32(head[arrowBegin:]) != 0xFFFFFFFF {
		if err == io.EOF {
			err = nil // its reader says what is wrong
		}
		return false, err
	}
	n := int64(binary.LittleEndian.Uint32(head[arrowBegin+4:]))
	if n == 0 {
		return true, nil // no record batch
	}
	if n < 8 || n > maxArrowMetadata {
		return false, nil
	}
	meta := make([]byte, n)
	if _, err := f.ReadAt(meta, int64(len(head))); err != nil {
		return false, nil
	}
	v := flatbuf.New(meta)
	pos, err := v.Root()
	if err != nil || v.Check(arrowMessage, pos) != nil {
		return false, nil
	}
	return v.Byte(pos, 1) == 3, nil
}

// prefixed reads a prefix, and then the file that it closes.
type prefixed struct {
	io.Reader
	io.Closer
}

// newPrefixed returns a reader of first and then of src, which it closes.
func newPrefixed(first []byte, src io.ReadCloser) io.ReadCloser {
	return prefixed{io.MultiReader(bytes.NewReader(first), src), src}
}
