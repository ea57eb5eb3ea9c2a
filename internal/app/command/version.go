package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// version is set by the linker: -ldflags "-X
// github.com/exoswarm/exoswarm/internal/app/command.version=v1.2.3".
var version string

// Version is the version of this build: what the linker set, else the version of the module, else
// the revision that it was built from.
func Version() (number, revision string) {
	number, revision = version, "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		if number == "" {
			number = "unknown"
		}
		return number, revision
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if number == "" {
		number = info.Main.Version
	}
	if number == "" || number == "(devel)" {
		number = "devel"
		if revision != "unknown" {
			number += "-" + revision[:min(12, len(revision))] + changed
		}
	}
	return number, revision
}

func versionText() string {
	number, revision := Version()
	return fmt.Sprintf("%s (revision %s, %s, %s/%s)", number, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// withVersion adds the flag --version and the command version. Both print the same line. The flag
// keeps cobra's own format: a template of ours would link text/template (tools/size).
func withVersion(root *cobra.Command) {
	root.Version = versionText()
	for _, c := range root.Commands() {
		if c.Name() == "version" {
			return
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), root.Name(), "version", root.Version)
		},
	})
}

// newBuildInfo returns the metric exoswarm_build_info: 1, labelled with the name of the program and
// what it was built from. Queries join it to other metrics, to select by program or version.
func newBuildInfo(program string) prometheus.Collector {
	number, revision := Version()
	labels := prometheus.Labels{
		"program": program, "version": number, "revision": revision,
		"go_version": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "exoswarm_build_info", Help: "1, labelled with the program, " +
		"and with the version and revision of this build.", ConstLabels: labels})
	g.Set(1)
	return g
}
