// Package telemetry is the example swarm and its data: two weeks of six series of a service and its
// machine room, with labelled incidents. Command generate makes them.
package telemetry

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
)

// packed has the files of this folder that Files holds, packed: the commands contain them, and their
// text is four times as large.
//
//go:embed files.zip
var packed []byte

// Files holds swarm.yaml, the series under data, and incidents.json with the labels of the series.
var Files fs.FS = unpacked()

func unpacked() fs.FS {
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		panic(fmt.Sprintf("telemetry: files.zip: %v", err))
	}
	return r
}
