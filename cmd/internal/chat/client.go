package chat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/openai"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// client asks the API of exoswarm serve --models.
type client struct {
	api, token string
	patience   time.Duration // of a server that is away, or loads a model
	http       http.Client
}

// errLost is a connection that has ended before its answer.
var errLost = errors.New("the connection to the server is lost")

const maxEvent = 1 << 20 // bytes of an event

// stream asks for a stream and calls fn with each part of its text. A stream that is lost is
// continued behind the last event that has arrived, so that each part comes once.
func (c *client) stream(ctx context.Context, path string, body any, fn func(text string) error) (
	why string, err error,
) {
	data, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("encode a request: %w", err)
	}
	last, since := "", time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		before := last
		why, err = c.once(ctx, path, data, &last, fn)
		if last != before {
			since, pause = time.Now(), 100*time.Millisecond
		}
		if !errors.Is(err, errLost) || time.Since(since) > c.patience {
			return why, err
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return "", err
		}
	}
}

// once reads a stream from behind the event with the id in last to its end, or to the loss of its
// connection.
func (c *client) once(ctx context.Context, path string, body []byte, last *string, fn func(string) error) (
	why string, err error,
) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+path, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("--api: %w", err)
	}
	r.Header.Set("Content-Type", httpapi.JSON)
	r.Header.Set("Authorization", "Bearer "+c.token)
	if *last != "" {
		r.Header.Set("Last-Event-ID", *last)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return "", lost(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", refused(res)
	}
	lines, id, ended := bufio.NewScanner(res.Body), "", ""
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data" && value == "[DONE]":
			return ended, nil
		case name == "data":
			text, finish, err := decode([]byte(value))
			if err != nil {
				return "", err
			}
			*last = id
			if err := fn(text); err != nil {
				return "", err
			}
			if finish != "" {
				ended = finish
			}
		}
	}
	return "", lost(ctx, lines.Err())
}

// lost returns the error of a connection, or of the end of ctx.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// decode returns the text of an event.
func decode(data []byte) (text, finish string, err error) {
	var e struct {
		openai.Answer
		Error *openai.Fault `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return "", "", fmt.Errorf("decode an event: %w", err)
	}
	if e.Error != nil {
		return "", "", errors.New(e.Error.Message)
	}
	for _, choice := range e.Choices {
		switch {
		case choice.Text != nil:
			text = *choice.Text
		case choice.Delta != nil && choice.Delta.Content != nil:
			text = *choice.Delta.Content
		}
		if choice.FinishReason != nil {
			finish = string(*choice.FinishReason)
		}
	}
	return text, finish, nil
}

// refused returns the error of an answer that is not 200. A server that starts, or loads the model,
// counts as lost.
func refused(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxEvent)) // the status is enough
	var f openai.Failure
	if json.Unmarshal(data, &f) != nil || f.Error.Message == "" {
		f.Error.Message = fmt.Sprintf("%s %.200s", res.Status, data)
	}
	switch {
	case res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusTooManyRequests,
		f.Error.Code != nil && *f.Error.Code == openai.CodeBusy: // the server has not noticed the loss yet
		return fmt.Errorf("%w: %s", errLost, f.Error.Message)
	case res.StatusCode < http.StatusInternalServerError:
		return jobs.Errorf(jobs.CodeInput, "%s", f.Error.Message)
	}
	return errors.New(f.Error.Message)
}
