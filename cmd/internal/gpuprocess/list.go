package gpuprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// listed is a device in the output of gpuagent devices. Sizes are in bytes.
type listed struct {
	Name        string `json:"name"`
	Model       string `json:"model,omitempty"`
	UUID        string `json:"uuid,omitempty"`
	PCIBus      string `json:"pci_bus,omitempty"`
	Compute     string `json:"compute_capability,omitempty"`
	Processors  int    `json:"multiprocessors,omitempty"`
	MemoryFree  int64  `json:"memory_free_bytes"`
	MemoryTotal int64  `json:"memory_total_bytes"`
	L2          int64  `json:"l2_bytes,omitempty"`
	Driver      int    `json:"driver_version,omitempty"`
	Error       string `json:"error,omitempty"` // why it cannot be used
}

func devicesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that --device takes: GPUs and the host, with free and total memory",
		RunE:  func(cmd *cobra.Command, _ []string) error { return listDevices(cmd) },
	}
	command.OutputFlag(cmd.Flags(), "table", "json")
	return cmd
}

// listDevices prints all GPUs and the host device as a table or JSON. A device that cannot be
// opened has an error in place of its memory; that there is no GPU is a line on stderr, and no
// failure. It may run while an agent runs.
func listDevices(cmd *cobra.Command) error {
	if err := command.CheckOutput(cmd.Flags()); err != nil {
		return err
	}
	format, _ := cmd.Flags().GetString("output")
	n, none := cuda.Count()
	var all []listed
	for i := range n {
		all = append(all, look(cmd.Context(), fmt.Sprintf("cuda:%d", i)))
	}
	all = append(all, look(cmd.Context(), "host"))
	if none != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "no GPU: %v\n", none)
	}
	if format == "json" {
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetIndent("", "  ")
		return out.Encode(all)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "DEVICE\tMODEL\tCOMPUTE\tSMS\tFREE MiB\tTOTAL MiB\tPCI BUS\tUUID\tERROR")
	for _, d := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", d.Name, d.Model, d.Compute, d.Processors,
			d.MemoryFree>>20, d.MemoryTotal>>20, d.PCIBus, d.UUID, d.Error)
	}
	return w.Flush()
}

// look opens a device, reads its properties, and closes it: only an open device knows its free
// memory. The context of a GPU takes some hundred MiB meanwhile, which count as used.
func look(ctx context.Context, name string) (l listed) {
	l.Name = name
	d, err := cuda.Open(ctx, name, cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.Error = err.Error()
		return l
	}
	p := d.Properties()
	l.Model, l.UUID, l.PCIBus, l.Processors, l.L2, l.Driver = p.Model, p.UUID, p.PCIBus, p.Multiprocessors, p.L2Bytes,
		p.DriverVersion
	if p.ComputeMajor > 0 {
		l.Compute = fmt.Sprintf("%d.%d", p.ComputeMajor, p.ComputeMinor)
	}
	l.MemoryFree, l.MemoryTotal, err = d.Memory()
	if err = errors.Join(err, d.Close()); err != nil {
		l.Error = err.Error()
	}
	return l
}
