package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// IndexName is the name of the file that says which tensor is in which of several files of a
// folder.
const IndexName = "model.safetensors.index.json"

// maxFiles is the most files of an index.
const maxFiles = 4096

// ParseIndex reads an index of several files. The result has the file of each tensor. A file is a
// name in the folder of the index: it has no path. The error is an ErrFormat.
func ParseIndex(data []byte) (files map[string]string, err error) {
	refuse := func(format string, args ...any) (map[string]string, error) {
		return nil, fmt.Errorf("%w: %s: %s", ErrFormat, IndexName, fmt.Sprintf(format, args...))
	}
	if len(data) > maxHeader {
		return refuse("it has more than %d bytes", maxHeader)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	open := func() error {
		if t, err := dec.Token(); err != nil || t != json.Delim('{') {
			return errors.Join(errors.New("an object is expected"), err)
		}
		return nil
	}
	if err := open(); err != nil {
		return refuse("%v", err)
	}
	different := map[string]bool{}
	for dec.More() {
		section, err := dec.Token()
		if err != nil {
			return refuse("%v", err)
		}
		if section != "weight_map" {
			var other json.RawMessage
			if err := dec.Decode(&other); err != nil || section != "metadata" {
				return refuse("key %.100q: metadata and weight_map are read", section)
			}
			continue
		}
		if files != nil {
			return refuse("weight_map is there twice")
		}
		if err := open(); err != nil {
			return refuse("weight_map: %v", err)
		}
		files = map[string]string{}
		for dec.More() {
			key, err := dec.Token()
			name, _ := key.(string)
			var file string
			if err == nil {
				err = dec.Decode(&file)
			}
			_, again := files[name]
			switch {
			case err != nil:
				return refuse("tensor %.100q: %v", name, err)
			case checkName(name) != nil || again:
				return refuse("tensor %.100q: its name is there twice, empty, longer than %d bytes or has control "+
					"characters", name, maxName)
			case !strings.HasSuffix(file, ".safetensors") || checkName(file) != nil ||
				strings.ContainsAny(file, `/\`) || strings.HasPrefix(file, "."):
				return refuse("tensor %s: file %.100q: use the name of a .safetensors file in the same folder", name,
					file)
			}
			files[name], different[file] = file, true
		}
		if _, err := dec.Token(); err != nil {
			return refuse("weight_map: %v", err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return refuse("%v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return refuse("more than spaces follow the object")
	}
	if len(files) == 0 || len(different) > maxFiles {
		return refuse("its weight_map names %d tensors in %d files: use at least 1 tensor, and at most %d files",
			len(files), len(different), maxFiles)
	}
	return files, nil
}
