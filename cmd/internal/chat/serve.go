package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/cmd/internal/serveprocess"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/retry"
)

// serve runs exoswarm serve --models in this process, for a command in a folder where none runs, and
// returns its address and the file of its token. A model that is not stored there is an error of
// usage. The caller calls end, which waits for the end of the server.
func serve(cmd *cobra.Command, name string) (url, tokenFile string, end func() error, err error) {
	if err := stored(cmd, name); err != nil {
		return "", "", nil, err
	}
	cmd.PrintErrf("no exoswarm serve runs in this folder: model %s is served until this command ends\n", name)
	ctx, cancel := context.WithCancel(cmd.Context())
	server := serveprocess.Command()
	server.SetArgs([]string{
		"--data-dir", command.DataFolder(), "--nats-port", "0", "--listen", "127.0.0.1:0", "--models", name,
	})
	server.SetOut(io.Discard)
	server.SetErr(io.Discard) // the error that ends it is returned
	server.SilenceErrors, server.SilenceUsage = true, true
	server.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return command.Environment(cmd.Flags()) }
	ended := make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		failed = server.ExecuteContext(ctx)
	}()
	end = func() error {
		cancel()
		<-ended
		if failed != nil && !errors.Is(failed, command.ErrInterrupted) && !errors.Is(failed, context.Canceled) {
			return fmt.Errorf("serve model %s: %w", name, failed)
		}
		return nil
	}
	for {
		if url, tokenFile = command.ServedPages(); url != "" {
			return url, tokenFile, end, nil
		}
		select {
		case <-ended:
			return "", "", nil, errors.Join(end(), context.Cause(cmd.Context()))
		default:
		}
		if err := retry.Sleep(ctx, 20*time.Millisecond); err != nil {
			return "", "", nil, errors.Join(err, end())
		}
	}
}

// stored returns an error unless a model is stored where exoswarm serve in this folder has it.
func stored(cmd *cobra.Command, name string) (err error) {
	b, err := models.OpenPlace(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	_, _, err = model.ReadManifest(cmd.Context(), b, name)
	if errors.Is(err, model.ErrNotFound) {
		return command.Usage("model %s is not stored in this folder: load it with exoswarm model load %[1]s --file "+
			"FILE, or name a server with --api and --token-file", name)
	}
	return err
}
