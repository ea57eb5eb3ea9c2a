// Command gen writes the generated files of a package of kernels: args.go, the arguments of its
// kernels in Go, and ptx.tar.zst, its kernels as PTX for machines without NVRTC. Run it through go
// generate ./cuda/kernels/... after a kernel has changed; a test fails until that is done.
//
// Signatures are read from the .cu files, which are the only place with the names and the order of
// parameters. For each signature args.go has a struct of the arguments of a launch and a struct of
// the arguments that a twin sees. The kernels of a file have the signature that is named after the
// file. nvcc compiles a kernel if the archive has no PTX of its present source.
//
// The first argument is the folder of the package below cuda/kernels, or "." for cuda/kernels
// itself. Further arguments are options:
//
//	NAME=a.cu,b_*       kernels of these files or names share a signature with this name
//	NAME=p,q,...        these consecutive parameters of several signatures are a struct
//	TYPE:byte           twins see memory of this C type as bytes
//	KERNELS.p~q:TYPE    parameter p of these kernels is called q and is memory of this type
//
// A comment of the package that starts with NAMEArgs becomes the comment of the struct.
package main

import (
	"errors"
	"log"
	"os"

	_ "github.com/exoswarm/exoswarm/cuda/kernels/arrayset"    // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/graphset"    // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/gridset"     // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/languageset" // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/quantumset"  // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/spaceset"    // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/swarmset"    // registers its kernels
	_ "github.com/exoswarm/exoswarm/cuda/kernels/trainset"    // registers its kernels
)

// The files that the command writes.
const (
	argsFile = "args.go"
	ptxFile  = "ptx.tar.zst"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("gen: ", err)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no folder: go generate ./cuda/kernels/... has the arguments")
	}
	text, err := generateArgs(".", args[0], args[1:])
	if err != nil {
		return err
	}
	if err := os.WriteFile(argsFile, text, 0o644); err != nil {
		return err
	}
	return generatePTX(args[0], ptxFile)
}
