package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// folder lists the files of a folder below a root, without its subfolders. It follows links inside
// the root.
type folder struct {
	root   *os.Root // Files closes it
	folder string
	wanted func(name string) bool
}

func newFolderWatcher(uri string, format rows.Format, spec *WatchSpec, files *files.Files) (*watcher, error) {
	f, err := newWatcher(uri, format, spec)
	if err != nil {
		return nil, err
	}
	root, name, _, err := files.Resolve("file:" + strings.TrimPrefix(uri, "watch:"))
	if err != nil {
		return nil, access.InputError(
			"source %s: write watch:ROOT/FOLDER, with a ROOT that the agent knows (--root ROOT=DIR)", uri,
		)
	}
	d := &folder{root: root, folder: path.Clean("./" + name), wanted: f.wanted}
	if strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") {
		return nil, badSource(uri)("a folder is named by its path from the root, without ..")
	}
	info, err := root.Stat(d.folder)
	if err != nil {
		return nil, access.IOError("watch", uri, err)
	}
	if !info.IsDir() {
		return nil, access.InputError("watch %s: it is not a folder", uri)
	}
	f.src = d
	return f, nil
}

// wanted reports whether a file is read. A name that begins with a dot is a file that is being
// written, and a name without a format is another kind of file.
func (f *watcher) wanted(name string) bool {
	return !strings.HasPrefix(path.Base(name), ".") && f.formatOf(name) != ""
}

// Close implements watchable. The root belongs to Files.
func (d *folder) Close() error { return nil }

// list implements watchable: in the order of modification, then of names. It returns at most one
// file more than most, which tells the caller that there are too many.
func (d *folder) list(ctx context.Context, most int) ([]listed, error) {
	dir, err := files.OpenFile(d.root, d.folder)
	if err != nil {
		return nil, access.IOError("watch", d.folder, err)
	}
	defer dir.Close()
	type dated struct {
		listed
		at time.Time
	}
	var all []dated
	for len(all) <= most {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		entries, err := dir.ReadDir(256)
		for _, e := range entries {
			if !d.wanted(e.Name()) || e.IsDir() {
				continue
			}
			l, at, ok := d.stat(e)
			if ok && len(all) <= most {
				all = append(all, dated{l, at})
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, access.IOError("watch", d.folder, err)
		}
	}
	slices.SortFunc(all, func(a, b dated) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	list := make([]listed, len(all))
	for i, l := range all {
		list[i] = l.listed
	}
	return list, nil
}

// stat returns the file of a directory entry. It returns false for a folder, and for an entry that
// is gone. A file that cannot be read is listed with the reason in why, so that the job reports it
// once.
func (d *folder) stat(e fs.DirEntry) (l listed, at time.Time, ok bool) {
	l.name = e.Name()
	info, err := d.root.Stat(path.Join(d.folder, l.name))
	switch {
	case err != nil && e.Type()&fs.ModeSymlink != 0:
		l.why = "it is a link to nothing, or out of the root"
	case errors.Is(err, fs.ErrNotExist):
		return l, at, false
	case err != nil:
		l.why = "it cannot be looked at: " + reasonOf(err)
	case info.IsDir():
		return l, at, false
	case !info.Mode().IsRegular():
		l.why = "it is not a regular file"
	default:
		l.size, l.tag, at = info.Size(), timeTag(info), info.ModTime()
	}
	return l, at, true
}

// timeTag returns the tag of a file: its time of modification, as exact as the file system stores
// it.
func timeTag(info fs.FileInfo) string { return strconv.FormatInt(info.ModTime().UnixNano(), 36) }

// reasonOf returns the text of an error of a file without the path on this machine.
func reasonOf(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err.Error()
}

// copy implements watchable. It returns errWritten for a file that is not the listed one any more,
// and unreadable for a file that no later call can read.
func (d *folder) copy(ctx context.Context, l listed, doc *os.File) error {
	file, err := files.OpenFile(d.root, path.Join(d.folder, l.name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unreadable{"it vanished before it was read"}
	case errors.Is(err, fs.ErrPermission):
		return unreadable{"permission denied: let the agent read it, under another name"}
	case err != nil:
		return unreadable{"it cannot be opened: " + reasonOf(err)}
	}
	defer file.Close()
	// The file is checked by its descriptor, before and after the copy, since another file may have
	// the name by now.
	for range 2 {
		info, err := file.Stat()
		if err != nil {
			return access.IOError("read", l.name, err)
		}
		if !info.Mode().IsRegular() || !l.same(listed{size: info.Size(), tag: timeTag(info)}) {
			return errWritten
		}
		if n, err := io.Copy(files.ScratchWriter(doc), io.LimitReader(until(ctx, file), l.size+1)); err != nil {
			return access.IOError("read", l.name, err)
		} else if n > l.size {
			return errWritten
		}
	}
	if n, err := doc.Seek(0, io.SeekCurrent); err != nil {
		return files.ScratchError("read back", "a temporary file", err)
	} else if n != l.size {
		return errWritten
	}
	return nil
}

// until returns a reader of r that fails with the cause of ctx after its end.
func until(ctx context.Context, r io.Reader) io.Reader { return untilReader{ctx, r} }

type untilReader struct {
	ctx context.Context //nolint:containedctx // it lasts for one copy
	r   io.Reader
}

func (u untilReader) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
