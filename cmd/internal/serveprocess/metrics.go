package serveprocess

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cpuprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// Families returns the metric families of exoswarm ui, and of exoswarm serve without its agents,
// whether they have series at present or not.
func Families() ([]command.Family, error) {
	r, err := command.Describe("exoswarm")
	if err != nil {
		return nil, err
	}
	err = r.Register(newExporter(nil))
	return r.Families(), err
}

// Process is a kind of process with its metric families.
type Process struct {
	// Job is the value of the label job that deploy/prometheus gives its targets.
	Job      string
	Title    string
	Families []command.Family
}

// Processes returns the processes that serve metrics. Families that all processes have are listed
// for the first Process alone, whose Job is empty.
func Processes() ([]Process, error) {
	list := []struct {
		job, title string
		families   func() ([]command.Family, error)
	}{
		{"exoswarm-cpuagent", "CPU agents", cpuprocess.Families},
		{"exoswarm-gpuagent", "GPU agents", gpuprocess.Families},
		{"exoswarm-cluster", "The cluster: exoswarm ui and exoswarm serve", Families},
	}
	all := []Process{{Title: "Every process"}}
	seen := map[string]int{}
	for _, p := range list {
		found, err := p.families()
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", p.job, err)
		}
		for _, f := range found {
			seen[f.Name]++
		}
		all = append(all, Process{p.job, p.title, found})
	}
	for i := range all[1:] {
		p := &all[i+1]
		p.Families = slices.DeleteFunc(p.Families, func(f command.Family) bool {
			if seen[f.Name] < len(list) {
				return false
			}
			if i == 0 {
				all[0].Families = append(all[0].Families, f)
			}
			return true
		})
	}
	return all, nil
}

// MetricsCommand returns exoswarm metrics, which needs no cluster.
func MetricsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "metrics [TEXT]",
		Short: "Describe the metrics of all processes",
		Long: `Describe each metric that processes serve with --metrics HOST:PORT, with type, labels and unit:
all of them, or those whose name has TEXT. docs/metrics.md tells what is not measured.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := Processes()
			if err != nil {
				return err
			}
			text := strings.Join(args, "")
			out := cmd.OutOrStdout()
			for _, p := range all {
				title := p.Title
				if p.Job != "" {
					title += fmt.Sprintf(" (job=%q)", p.Job)
				}
				for _, f := range p.Families {
					if !strings.Contains(f.Name, text) {
						continue
					}
					if title != "" {
						fmt.Fprintf(out, "# %s\n", title)
						title = ""
					}
					facts := f.Type
					if len(f.Labels) > 0 {
						facts += " by " + strings.Join(f.Labels, ", ")
					}
					if unit := f.Unit(); unit != "" {
						facts += ", in " + unit
					}
					if _, err := fmt.Fprintf(out, "%s: %s\n    %s\n", f.Name, facts, f.Help); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}
