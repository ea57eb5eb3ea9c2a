package command

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/base/number"
)

// plainNumbers has all flags of a command and of the commands below it refuse numbers that are not
// decimal. The library of flags reads the numbers of the Go language, where 0100 is 64.
func plainNumbers(cmd *cobra.Command) {
	strict := func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64",
			"float32", "float64":
			if _, is := f.Value.(plainValue); !is {
				f.Value = plainValue{f.Value}
			}
		}
	}
	cmd.LocalFlags().VisitAll(strict)
	cmd.PersistentFlags().VisitAll(strict)
	for _, c := range cmd.Commands() {
		plainNumbers(c)
	}
}

// plainValue is the value of a flag that is a number.
type plainValue struct{ pflag.Value }

// Set implements pflag.Value.
func (v plainValue) Set(text string) error {
	if !number.Plain(text) {
		return errors.New("write a number with decimal digits, without leading zeros")
	}
	return v.Value.Set(text)
}
