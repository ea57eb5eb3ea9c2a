package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Table prints things of one type: as rows below columns for people, and as items for programs.
type Table[T any] struct {
	Columns []string
	Row     func(T) []any
}

// Begin starts a list. The caller ends it.
func (t Table[T]) Begin(cmd *cobra.Command) (*command.Printer, error) {
	return command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), t.Columns...)
}

// Item prints one item of a list.
func (t Table[T]) Item(p *command.Printer, v T) error { return p.Item(v, t.Row(v)...) }

// Print prints all items.
func (t Table[T]) Print(cmd *cobra.Command, all ...T) error {
	p, err := t.Begin(cmd)
	if err != nil {
		return err
	}
	for _, v := range all {
		if err := t.Item(p, v); err != nil {
			return err
		}
	}
	return p.End()
}

// Stream prints the items that read passes to its function, as they come, up to a limit; 0 is
// none. A reader of standard output that ends early, as head does, ends the list. The list is
// complete in its format also after an error of read.
func (t Table[T]) Stream(cmd *cobra.Command, limit int, read func(fn func(T) bool) error) error {
	p, err := t.Begin(cmd)
	if err != nil {
		return err
	}
	err = t.Fill(p, limit, read)
	return errors.Join(err, p.End())
}

// Fill is Stream for a list that the caller has started and ends. The limit counts all its items.
func (t Table[T]) Fill(p *command.Printer, limit int, read func(fn func(T) bool) error) error {
	var failed error // of the printer; the function of read returns false to end the list
	err := read(func(v T) bool {
		failed = t.Item(p, v)
		return failed == nil && (limit == 0 || p.Len() < limit)
	})
	return errors.Join(err, failed)
}

// Row is an item with its cells, for tables whose cells do not follow from the item.
type Row struct {
	item  any
	cells []any
}

// NewRow returns a row of PrintRows.
func NewRow(item any, cells ...any) Row { return Row{item, cells} }

// Print prints the row as an item of a list.
func (r Row) Print(p *command.Printer) error { return p.Item(r.item, r.cells...) }

// PrintRows prints rows below columns.
func PrintRows(cmd *cobra.Command, columns []string, rows ...Row) error {
	p, err := Table[Row]{Columns: columns}.Begin(cmd)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := r.Print(p); err != nil {
			return err
		}
	}
	return p.End()
}

// PrintOne prints a list of one item.
func PrintOne(cmd *cobra.Command, columns []string, item any, cells ...any) error {
	return PrintRows(cmd, columns, NewRow(item, cells...))
}

// List is the action of a verb that prints all things of a noun.
func List[T any](t Table[T], all func(ctx context.Context, c *natsq.Conn) ([]T, error)) Action {
	return Queue(func(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
		found, err := all(cmd.Context(), c)
		if err != nil {
			return err
		}
		return t.Print(cmd, found...)
	})
}

// Time returns a time as the text of a table; none for the zero time.
func Time(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.Format(time.RFC3339)
}
