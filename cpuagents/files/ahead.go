package files

import (
	"context"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// A block of rows that are read ahead ends at aheadRows rows or after about aheadBytes. aheadBlocks
// blocks wait at a time, so a source holds a megabyte at most, and one row more.
const (
	aheadRows   = 512
	aheadBytes  = 128 << 10
	aheadBlocks = 4
)

// ahead reads the rows of another reader in a goroutine, in their order. Only that goroutine uses
// the reader, until it has ended.
type ahead struct {
	r      rows.Reader
	stop   context.CancelFunc
	blocks chan []readRow
	block  []readRow // the rest of the current one
	warm   func(keys []string)
	keys   []string // of the current block
	err    error    // of r; set before blocks is closed
}

// readRow is a result of rows.Reader.Next without an error.
type readRow struct {
	row      rows.Row
	rejected *rows.Reject
}

// Ahead opens a reader whose rows are parsed before the caller asks for them. The reader must never
// wait for rows that do not exist yet; the reader of a file does not. open gets a context that ends
// with ctx and with Close. The end of ctx ends the reading, and Next returns its cause. Next calls
// warm with the keys of the rows that it returns next, some hundred at a time; nil for no call.
func Ahead(ctx context.Context, open func(context.Context) (rows.Reader, error), warm func(keys []string),
) (rows.Reader, error) {
	ctx, stop := context.WithCancel(ctx)
	r, err := open(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	a := &ahead{r: r, stop: stop, warm: warm, blocks: make(chan []readRow, aheadBlocks)}
	go a.read(ctx)
	return a, nil
}

func (a *ahead) read(ctx context.Context) {
	defer close(a.blocks)
	for {
		block, err := a.fill()
		select {
		case a.blocks <- block:
		case <-ctx.Done():
			a.err = context.Cause(ctx)
			return
		}
		if err != nil {
			a.err = err
			return
		}
	}
}

func (a *ahead) fill() ([]readRow, error) {
	block := make([]readRow, 0, aheadRows)
	for size := 0; len(block) < aheadRows && size < aheadBytes; {
		row, rejected, err := a.r.Next()
		if err != nil {
			return block, err
		}
		block = append(block, readRow{row, rejected})
		size += len(row.Key) + len(row.Timestamp) + 12*len(row.Features)
		if rejected != nil {
			size += len(rejected.Reason) + len(rejected.Cure)
		}
	}
	return block, nil
}

func (a *ahead) Next() (rows.Row, *rows.Reject, error) {
	for len(a.block) == 0 {
		block, ok := <-a.blocks
		if !ok {
			return rows.Row{}, nil, a.err
		}
		a.block = block
		if a.warm == nil {
			continue
		}
		a.keys = a.keys[:0]
		for i := range block {
			if block[i].rejected == nil {
				a.keys = append(a.keys, block[i].row.Key)
			}
		}
		a.warm(a.keys)
	}
	next := &a.block[0]
	a.block = a.block[1:]
	return next.row, next.rejected, nil
}

// Close implements rows.Reader. The goroutine has ended when it returns.
func (a *ahead) Close() error {
	a.stop()
	for range a.blocks { // until it is closed
	}
	return a.r.Close()
}
