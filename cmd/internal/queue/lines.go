package queue

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
)

// batchBytes bounds the lines of a batch in bytes, so that the batch fits a message to an agent. A
// quarter of the largest message suffices: no line becomes four times as long by the fields that
// the gateway adds.
const batchBytes = jobs.MaxMessage / 4

type batchSubmitter interface {
	Submit(ctx context.Context, j jobs.Job) (id string, err error)
	SubmitBatch(ctx context.Context, batch []jobs.Job) (ids []string, err error)
}

// submitLines submits the jobs of a stream, one JSON object a line, and calls submitted with the id
// of each job that was submitted, in that order: a delayed job is submitted at once, other jobs in
// batches of one pool. It holds one batch at a time. A batch is submitted whole or not at all, and
// batches before an error stay submitted. Errors have the name of the stream and the number of the
// line, from 1.
func submitLines(ctx context.Context, c batchSubmitter, name string, in io.Reader,
	submitted func(id string) error,
) error {
	var batch []jobs.Job
	size, length := 0, 0 // of the batch: its jobs and their parents, and its bytes
	flush := func() error {
		ids, err := c.SubmitBatch(ctx, batch)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := submitted(id); err != nil {
				return err
			}
		}
		batch, size, length = batch[:0], 0, 0
		return nil
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), jobs.MaxMessage)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		j, err := gateway.ParseSubmission(line)
		if err != nil {
			return fmt.Errorf("%s line %d: %w", name, n, err)
		}
		if j.NotBefore.After(time.Now()) && len(j.After) == 0 { // the queue takes a delayed job alone
			id, err := c.Submit(ctx, j)
			if err != nil {
				return fmt.Errorf("%s line %d: %w", name, n, err)
			}
			if err := submitted(id); err != nil {
				return err
			}
			continue
		}
		size, length = size+1+len(j.After), length+len(line)
		if len(batch) > 0 && (size > jobs.MaxBatch || length > batchBytes ||
			j.Pool != batch[0].Pool || j.Level() != batch[0].Level()) {
			if err := flush(); err != nil {
				return fmt.Errorf("%s before line %d: %w", name, n, err)
			}
			size, length = 1+len(j.After), len(line)
		}
		batch = append(batch, j)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return jobs.Errorf(jobs.CodeInput, "%s: a line of more than %d bytes: submit that job with --spec", name,
			jobs.MaxMessage)
	} else if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := flush(); err != nil {
		return fmt.Errorf("%s, last batch: %w", name, err)
	}
	return nil
}
