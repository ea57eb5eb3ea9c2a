package kernels

import (
	"archive/tar"
	"crypto/sha256"
	_ "embed" // the archive
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

//go:generate go run ./internal/gen . uint4:byte leaky_[st]*.weights~table:uint32 Observe=*_observe Tick=*_tick* Told=gru_told_* Step=*_step* Score=gru_score_* Product=gemm_* Tally=tally_u* TallyGroups=tally_groups_* TallyResident=tally_resident_* TallyWeighted=tally_weighted_* Paged=pages,page_bytes,frames,layout,params Ticking=pages,page_bytes,frames,layout,params,table,groups,first,count,steps,tally,decisions,scratch,sequence,result Heard=decision,node,width,merge,rate Rule=rule,of_all,num,den Closed=seen,round,sequence,scratch,word Ballots=ballots,first,n,candidates,priorities,flags,rule,of_all,num,den Fused=nodes,dim,flags,sums,tallies,scratch,sequence,result

// PTXArch is the oldest chip that the embedded PTX serves; the driver compiles it for newer ones.
const PTXArch = "compute_70"

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts Archive

// PTX is the kernel compiled to portable assembly when the source was last generated, for machines
// that have a driver and no NVRTC. It needs no header of the file: the text is what the driver
// takes. It has the kernels of this package only: packages of sets have their own PTX, so that a
// program without a driver contains no PTX.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

// Archive has the PTX of a set of kernels. Its methods get the archive, a tar with a file NAME.ptx
// for each kernel, compressed with zstd; the first call reads it. The archive is an argument, so
// that the linker leaves it out of a program that calls none of them. The zero value is ready, and
// its methods may be called from several goroutines.
type Archive struct {
	once  sync.Once
	texts map[string]string
}

// PTX returns the text of a kernel. An archive that is damaged has the texts before the damage.
func (a *Archive) PTX(archive, name string) (text string, ok bool) {
	a.once.Do(func() { a.texts = unpack(archive) })
	text, ok = a.texts[name]
	return text, ok
}

// Names returns the names of the kernels.
func (a *Archive) Names(archive string) []string {
	a.PTX(archive, "")
	return slices.Sorted(maps.Keys(a.texts))
}

func unpack(archive string) map[string]string {
	texts := map[string]string{}
	d, err := zstd.NewReader(strings.NewReader(archive), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return texts
	}
	defer d.Close()
	for r := tar.NewReader(d); ; {
		h, err := r.Next()
		if err != nil { // io.EOF too
			return texts
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return texts
		}
		texts[strings.TrimSuffix(h.Name, ".ptx")] = string(text)
	}
}

// PTXHeader is the first line of the kernel's PTX file. It names the source that the file was made
// of, so that a file that does not belong to its source any more is found without a compiler.
func PTXHeader(s Source) string {
	h := sha256.Sum256([]byte(strings.Join(append([]string{PTXArch, s.Code}, s.Options()...), "\x00")))
	return "// " + s.Name + " for " + PTXArch + ", of source " + hex.EncodeToString(h[:])
}
