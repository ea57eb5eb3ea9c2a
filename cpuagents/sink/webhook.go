package sink

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// WebhookSpec names a webhook. A message is NDJSON with the lines of the output, and has the
// headers of the Standard Webhooks specification: webhook-id, webhook-timestamp and
// webhook-signature. The id is the same whenever the same decisions are sent again, and is in
// Idempotency-Key too.
type WebhookSpec struct {
	URL string `json:"url"`
	// Secret refers to the key of the signature: env:NAME or file:NAME of the agent. Empty: not
	// signed.
	Secret string `json:"secret,omitempty"`
	// Headers of every request. {env:NAME} and {file:NAME} in a value are replaced by secrets of
	// the agent.
	Headers map[string]string `json:"headers,omitempty"`
	// All sends every decision, not only decisions for the last candidate.
	All bool `json:"all,omitempty"`
	// Timeout, Rate, Tries and Backoff are as in remote.Limits.
	Timeout float64 `json:"timeout_s,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Tries   int     `json:"tries,omitempty"`
	Backoff float64 `json:"backoff_s,omitempty"`
}

// webhook posts decisions to a URL. Its position is on the queue. An attempt that continues a job
// sends what may not have been received again, under the same ids.
type webhook struct {
	positionLog
	job     string
	spec    WebhookSpec
	limits  remote.Limits
	client  *http.Client
	secrets *access.Store
	limit   *rate.Limiter
	enc     rows.Encoder
	anomaly uint32
	body    []byte
}

// NewWebhook returns the sink of a webhook, whose specification it checks. A nil guard allows no
// host, and a nil store reads the secrets of the environment.
func NewWebhook(
	job string, spec WebhookSpec, l rows.Layout, guard *access.Guard, secrets *access.Store,
) (Sink, error) {
	bad := func(err error) error {
		return &jobs.Error{
			Code:    jobs.CodeInvalid,
			Message: fmt.Sprintf("webhook %s: %v", remote.WithoutQuery(spec.URL), err),
		}
	}
	u, err := url.Parse(spec.URL)
	if err != nil {
		return nil, bad(access.ErrURL)
	}
	if err := guard.Check(u); err != nil {
		return nil, bad(err)
	}
	bounds, err := remote.Limits{
		Timeout: spec.Timeout,
		Rate:    spec.Rate,
		Tries:   spec.Tries,
		Backoff: spec.Backoff,
	}.WithDefaults()
	if err = errors.Join(err, remote.CheckHeaders(spec.Headers)); err != nil {
		return nil, bad(err)
	}
	secrets = secrets.At(u.Hostname())
	if spec.Secret != "" {
		if _, err := secrets.Get(spec.Secret); err != nil {
			return nil, bad(err)
		}
	}
	return &webhook{
		job: job, spec: spec, limits: bounds, client: guard.Client(false), secrets: secrets,
		limit: rate.NewLimiter(rate.Limit(bounds.Rate), 1),
		enc:   rows.NewNDJSONEncoder(l), anomaly: uint32(len(l.Candidates) - 1),
	}, nil
}

// End implements Sink: nothing is held back.
func (w *webhook) End(context.Context) error { return nil }

func (w *webhook) Close() { w.client.CloseIdleConnections() }

// Send implements Sink. It returns when the receiver has accepted the decisions.
func (w *webhook) Send(ctx context.Context, number uint64, d *batch.Decisions) error {
	if number <= w.sent {
		return nil
	}
	w.body = w.body[:0]
	for i := range d.Len() {
		if w.spec.All || d.Decision[i] == w.anomaly {
			w.body = w.enc.Spool(w.body, d, i)
		}
	}
	if len(w.body) == 0 {
		return nil
	}
	err := w.limits.Retry().Do(ctx, func() (time.Duration, error) {
		if err := w.limit.Wait(ctx); err != nil {
			return 0, err
		}
		return w.once(ctx, number)
	})
	if err != nil {
		return err
	}
	return w.advance(ctx, number)
}

// once posts the body with the id of a batch, and returns the least pause that the receiver asks
// for. Any status of 2xx accepts the message. The secrets are read for each request, so a rotated
// key is used at once.
func (w *webhook) once(ctx context.Context, number uint64) (time.Duration, error) {
	where := remote.WithoutQuery(w.spec.URL)
	ctx, cancel := context.WithTimeout(ctx, w.limits.RequestTimeout())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.spec.URL, bytes.NewReader(w.body))
	if err != nil {
		return 0, retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "webhook %s: %v", where, access.ErrURL))
	}
	id := w.job + "-" + strconv.FormatUint(number, 10)
	at := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("User-Agent", "exoswarm")
	req.Header.Set("Content-Type", "application/x-ndjson")
	if err := remote.SetHeaders(req, w.spec.Headers, w.secrets, true); err != nil {
		return 0, retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "webhook %s: %v", where, err))
	}
	req.Header.Set("webhook-id", id)
	req.Header.Set("Idempotency-Key", id)
	req.Header.Set("webhook-timestamp", at)
	if w.spec.Secret != "" {
		key, err := w.secrets.Get(w.spec.Secret)
		if err != nil {
			return 0, retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "webhook %s: %v", where, err))
		}
		req.Header.Set("webhook-signature", Sign(key.Reveal(), id, at, w.body))
	}
	after, err := remote.Post(w.client, req, where)
	if err != nil && jobs.AsError(err).Code == jobs.CodeInput { // the data is not at fault
		return 0, retry.Permanent(&jobs.Error{Code: jobs.CodeIO, Message: err.Error()})
	}
	return after, err
}

// Sign returns the webhook-signature of a message. A receiver computes it too, and compares both in
// constant time. It is v1, and the HMAC-SHA-256 of id, timestamp and body with dots between them,
// in base64. timestamp is in seconds since 1970.
func Sign(key, id, timestamp string, body []byte) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(id + "." + timestamp + "."))
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}
