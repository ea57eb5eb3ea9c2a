package files

import (
	"context"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs"
)

// Folder writes complete files into a folder below a root. It has the methods that sinks expect of
// a store of objects. Its methods may be called concurrently, for different names.
type Folder struct {
	files *Files
	uri   string // without a slash at its end
}

// OpenFolder opens file:ROOT/FOLDER. A folder that is missing is created. Links below the root are
// followed only inside it. The folder needs no Close, because Files owns the root.
func (f *Files) OpenFolder(uri string) (*Folder, error) {
	root, name, _, err := f.Resolve(uri)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "write file:ROOT/FOLDER")
	}
	if name = strings.Trim(name, "/"); name != "" {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return nil, access.IOError("make folder", name, err)
		}
	}
	return &Folder{f, strings.TrimRight(uri, "/")}, nil
}

// Put writes a file with data under a name in the folder. It replaces a file of that name, as a
// whole or not at all. Folders have no media types, so that parameter is ignored. data is not kept.
func (f *Folder) Put(ctx context.Context, name, _ string, data []byte) error {
	out, err := f.files.Create(ctx, f.uri+"/"+name)
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := out.Write(data); err != nil {
		return access.IOError("write", name, err)
	}
	return out.Commit()
}

// Close does nothing. It is there because sinks close their store.
func (f *Folder) Close() error { return nil }
