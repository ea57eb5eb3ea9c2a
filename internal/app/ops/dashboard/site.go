package dashboard

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/exoswarm/exoswarm/internal/base/picture"
)

//go:embed ui
var ui embed.FS

// pages are the files of the site. Their folder has the hash of all of them in its name, so that
// browsers may keep them for ever and never mix two versions. All addresses in them are relative:
// modules import each other relatively, and the page is at the root of the path prefix.
type pages struct {
	folder string // "assets/HASH"
	index  asset
	files  map[string]asset // by path below folder
}

// asset is one file, ready to send.
type asset struct {
	media  string
	body   []byte
	zipped []byte // nil: it would not be smaller
	tag    string
}

// site returns the site of all servers of the process. It is compressed at the first use.
var site = sync.OnceValue(newPages)

// late are the modules that browsers load when a page needs them.
var late = []string{"pages/maps.js", "pages/timeline.js", "raster.js"}

// newPages reads the embedded files, compresses them, and completes the page with links, with which
// the browser loads all modules at once. It panics when a file is missing, which tests notice.
func newPages() *pages {
	p := &pages{files: map[string]asset{}}
	all := sha256.New()
	var names []string
	contents := map[string][]byte{
		// The script is a classic one. The added line makes it a module.
		"vendor/uplot.mjs":     []byte(picture.UPlotJS + "\nexport default uPlot;\n"),
		"vendor/uplot.css":     []byte(picture.UPlotCSS),
		"vendor/uPlot.LICENSE": []byte(picture.UPlotLicense),
	}
	err := fs.WalkDir(ui, "ui", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := ui.ReadFile(name)
		contents[strings.TrimPrefix(name, "ui/")] = body
		return err
	})
	if err != nil {
		panic("dashboard: " + err.Error())
	}
	for name := range contents {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(all, "%s %d\n", name, len(contents[name]))
		_, _ = all.Write(contents[name])
	}
	p.folder = "assets/" + hex.EncodeToString(all.Sum(nil)[:8])
	var preload strings.Builder
	for _, name := range names {
		if name == "index.html" {
			continue
		}
		p.files[name] = newAsset(name, contents[name])
		if ext := path.Ext(name); (ext == ".js" || ext == ".mjs") && name != "app.js" &&
			!slices.Contains(late, name) {
			fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s/%s\">\n", p.folder, name)
		}
	}
	index := strings.NewReplacer("{{assets}}", p.folder, "{{preload}}", preload.String()).Replace(
		string(contents["index.html"]))
	p.index = newAsset("index.html", []byte(index))
	return p
}

// newAsset returns a file. Its extension gives the media type: the table of the operating system
// may differ, and browsers run no module of another type.
func newAsset(name string, body []byte) asset {
	a := asset{body: body}
	switch path.Ext(name) {
	case ".js", ".mjs":
		a.media = "text/javascript; charset=utf-8"
	case ".css":
		a.media = "text/css; charset=utf-8"
	case ".html":
		a.media = "text/html; charset=utf-8"
	case ".svg":
		a.media = "image/svg+xml"
	default:
		a.media = "text/plain; charset=utf-8"
	}
	if z := zipped(body, gzip.BestCompression); len(z) < len(body) {
		a.zipped = z
	}
	a.tag = tagOf(body)
	return a
}

func tagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// register adds the routes of the site. They need no login: the files have nothing of the cluster.
func (p *pages) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		p.index.write(w, r, http.StatusOK)
	})
	mux.HandleFunc("GET /assets/{hash}/{name...}", func(w http.ResponseWriter, r *http.Request) {
		a, found := p.files[r.PathValue("name")]
		if !found || "assets/"+r.PathValue("hash") != p.folder {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		a.write(w, r, http.StatusOK)
	})
}

// write sends a file, or only that it has not changed. The caller sets Cache-Control: browsers ask
// for the page itself each time, because it names the folder of all other files.
func (a *asset) write(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h.Set("Content-Type", a.media)
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", a.tag)
	if status == http.StatusOK && r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := a.body
	if a.zipped != nil && acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = a.zipped
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
