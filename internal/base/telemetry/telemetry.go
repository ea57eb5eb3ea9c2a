// Package telemetry embeds the example swarm of examples/telemetry and its data: two weeks of six
// series of a service and its machine room, with labelled incidents. Command generate of tools/
// makes them.
package telemetry

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
)

// packed is compressed because the commands contain it, and the text is four times as large.
//
//go:embed files.zip
var packed []byte

// Files holds swarm.yaml, the series under data, and incidents.json with the labels of the series,
// as in the folder examples/telemetry.
var Files fs.FS = unpacked()

func unpacked() fs.FS {
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		panic(fmt.Sprintf("telemetry: files.zip: %v", err))
	}
	return r
}
