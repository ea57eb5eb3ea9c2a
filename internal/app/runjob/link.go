package runjob

import (
	"context"
	"sync"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// link is the connection of a run to the queue that does its job: in this process, or in a cluster.
type link struct {
	conn    *natsq.Conn
	carrier carrier
	// base is for the calls before and after the work of the job. It does not end with the context
	// of the run, but with the loss of the server.
	base context.Context //nolint:containedctx // it ends with the connection, which it describes
	// close ends the connection after everything that uses it. It returns err, or the loss of the
	// server or of its disk as the reason of err.
	close func(err error) error
}

// connect connects a run to its queue. ctx bounds the connection to a cluster alone; id is the id
// of the job.
func connect(ctx context.Context, o *Options, in *input, dest *userfile.Destination,
	tracing *command.Tracing, id string,
) (*link, error) {
	if o.OnCluster() {
		return connectCluster(ctx, o, tracing, id)
	}
	return startLocal(context.WithoutCancel(ctx), o, in, dest, tracing)
}

// startLocal starts a cluster in this process, whose CPU agent reads the inputs and writes the
// output in place. A disk of the streams that is full ends the run at once, as the server answers
// nothing more.
func startLocal(base context.Context, o *Options, in *input, dest *userfile.Destination,
	tracing *command.Tracing,
) (*link, error) {
	roots, local := localRoots(in.files, dest)
	for name, dir := range o.Roots {
		if roots[name] != "" {
			return nil, command.Usage("run: --root %s: the run itself has a folder of that name: choose another",
				name.Name)
		}
		roots[name] = dir
	}
	c, err := StartCluster(base, ClusterOptions{
		DataDir: o.DataDir, Roots: roots, Egress: o.Egress,
		Secrets: o.Secrets, Log: o.Log, Tracing: tracing.Provider(),
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-c.Full():
			c.Abort()
		case <-ended:
		}
	})
	return &link{conn: c.Conn(), carrier: local, base: base, close: func(err error) error {
		close(ended)
		watch.Wait()
		select {
		case <-c.Full(): // the reason of every other failure
			err = jobs.Errorf(jobs.CodeIO, "no space left on the disk of the streams, %s: free some or name "+
				"another folder with --data-dir", c.Dir())
		default:
		}
		if cerr := c.Close(); err == nil {
			err = cerr
		}
		return err
	}}, nil
}

// connectCluster connects to the server of a cluster. The input and the output of the job go
// through its object store.
func connectCluster(ctx context.Context, o *Options, tracing *command.Tracing, id string) (*link, error) {
	conn, err := natsq.Connect(ctx, natsconn.Options{
		URL: o.NATS, Login: o.Login, Name: "exoswarm run",
		Tracing: tracing.Provider(), GiveUp: o.Patience,
	})
	if err != nil {
		return nil, err
	}
	base, stop := command.WithLink(context.WithoutCancel(ctx), conn)
	return &link{conn: conn, carrier: &objectCarrier{conn: conn, id: id}, base: base, close: func(err error) error {
		stop()
		err = conn.LostError(err)
		conn.Close()
		return err
	}}, nil
}
