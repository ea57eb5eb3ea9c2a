package dashboard

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/redact"
)

// secretName matches the names of members whose text is a secret. It may match too much: an
// operator can read the original with exoswarm job get.
var secretName = regexp.MustCompile(
	`(?i)pass(word|wd)?$|secret|token|authorization|api[-_]?key|private[-_]?key|credential|cookie|^(dsn|nkey|creds)$`,
)

// withoutSecrets returns a copy of a job without the secrets of its specification and output.
func withoutSecrets(v cluster.JobView) cluster.JobView {
	if v.Job != nil {
		job := *v.Job
		job.Spec = hideSecrets(job.Spec)
		v.Job = &job
	}
	if v.Result != nil {
		result := *v.Result
		result.Output = hideSecrets(result.Output)
		v.Result = &result
	}
	return v
}

// hideSecrets returns JSON without logins in URLs, without the texts of members with the name of a
// secret, and without the values of HTTP headers. Text that is not JSON becomes null.
func hideSecrets(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // numbers keep their digits
	var v any
	if d.Decode(&v) != nil {
		return json.RawMessage("null")
	}
	out, err := json.Marshal(hide(v, false))
	if err != nil {
		return json.RawMessage("null")
	}
	return out
}

// hide returns v with its texts hidden: all of them, or the secrets alone. Numbers and truth values
// stay, whatever their name is: they are settings such as token_bytes. It changes v, which the
// caller has just decoded.
func hide(v any, all bool) any {
	switch v := v.(type) {
	case string:
		if all && v != "" {
			return redact.Hidden
		}
		return redact.Secrets(v)
	case []any:
		for i := range v {
			v[i] = hide(v[i], all)
		}
	case map[string]any:
		for name := range v {
			v[name] = hide(v[name], all || name == "headers" || secretName.MatchString(name))
		}
	}
	return v
}
