package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"strings"
)

//go:generate go run ./internal/ptxgen

// PTXArch is the oldest chip that the embedded PTX serves; the driver compiles it for newer ones.
const PTXArch = "compute_70"

//go:embed ptx
var ptxFiles embed.FS

// PTX is the kernel compiled to portable assembly when the source was last generated, for machines
// that have a driver and no NVRTC. It needs no header of the file: the text is what the driver
// takes. It has the kernels of this package only: those below have a PTX of their own, so that a
// program without a driver contains the PTX of none.
func PTX(name string) (text string, ok bool) { return ReadPTX(ptxFiles, name) }

// ReadPTX reads the PTX of a kernel from the folder ptx of its package.
func ReadPTX(files embed.FS, name string) (text string, ok bool) {
	data, err := files.ReadFile("ptx/" + name + ".ptx")
	return string(data), err == nil
}

// PTXHeader is the first line of the kernel's PTX file. It names the source that the file was made
// of, so that a file that does not belong to its source any more is found without a compiler.
func PTXHeader(s Source) string {
	h := sha256.Sum256([]byte(strings.Join(append([]string{PTXArch, s.Code}, s.Options()...), "\x00")))
	return "// " + s.Name + " for " + PTXArch + ", of source " + hex.EncodeToString(h[:])
}
