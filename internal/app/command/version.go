package command

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/jobs"
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

// Build is what version -o json prints.
type Build struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the repository; unknown outside of one
	Go       string `json:"go"`
	Platform string `json:"platform"` // as linux/amd64
	// Connectors reports whether the program has the clients of object stores, databases and
	// brokers.
	Connectors bool `json:"connectors"`
	// Protocol is the version of the protocol on the queue.
	Protocol int `json:"protocol"`
}

func build(program string) Build {
	b := Build{
		Program: program, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: jobs.Version,
	}
	b.Version, b.Revision = Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" {
				b.Connectors = slices.Contains(strings.Split(s.Value, ","), "connectors")
			}
		}
	}
	return b
}

// withVersion adds the flag --version and the command version, which print the same line. The flag
// keeps cobra's own format: a template of ours would link text/template (tools/size).
func withVersion(root *cobra.Command) {
	root.Version = versionText()
	for _, c := range root.Commands() {
		if c.Name() == "version" {
			return
		}
	}
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckOutput(cmd.Flags()); err != nil {
				return err
			}
			if cmd.Flag("output").Value.String() == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(build(root.Name()))
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), root.Name(), "version", root.Version)
			return err
		},
	}
	OutputFlag(cmd.Flags(), "text", "json")
	root.AddCommand(cmd)
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
