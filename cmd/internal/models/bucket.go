package models

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/keyring"
)

// KeyFileFlag adds --key-file for OpenBucket.
func KeyFileFlag(f *pflag.FlagSet) {
	f.String("key-file", "", "file with the keys of encrypted snapshots, as the GPU agents have it (gpuagent "+
		"--key-file)")
}

// OpenBucket opens a place of snapshots, with the keys of --key-file for encrypted ones. The caller
// closes it. A place that cannot be opened, or a wrong key file, is an error of usage.
func OpenBucket(cmd *cobra.Command, place string) (bucket.Bucket, error) {
	var keys *keyring.Ring
	if file, _ := cmd.Flags().GetString("key-file"); file != "" {
		var err error
		if keys, err = keyring.Read(file); err != nil {
			return nil, command.Usage("--key-file: %v", err)
		}
	}
	b, err := bucket.Open(cmd.Context(), place)
	if err != nil {
		return nil, command.Usage("snapshots: %v", err)
	}
	return bucket.Seal(b, keys), nil
}
