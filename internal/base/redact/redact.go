// Package redact makes text safe to show: without the secrets of URLs, without commands to a
// terminal, and of bounded length. Errors, log lines and tables pass through it, because users,
// servers and other tenants choose parts of them.
package redact

import (
	"net"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden stands where a secret was.
const Hidden = "[secret]"

// login matches the scheme of a URL and everything up to the last @ of the word. A password that is
// not escaped may hold any character but a space, so a path with an @ is cut too.
var login = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"'<>]*@`)

// Secrets returns text without the users, passwords and tokens of the URLs in it.
func Secrets(text string) string {
	if !strings.Contains(text, "@") || !strings.Contains(text, "://") {
		return text
	}
	return login.ReplaceAllString(text, "$1")
}

// URLs returns a list of server URLs, with commas between them, without users, passwords and
// tokens. A part that is neither a URL nor HOST:PORT may be half of a password, so it is hidden.
func URLs(list string) string {
	parts := strings.Split(list, ",")
	for i, text := range parts {
		scheme, rest, ok := strings.Cut(strings.TrimSpace(text), "://")
		if !ok {
			scheme, rest = "", strings.TrimSpace(text)
		} else {
			scheme += "://"
		}
		at := strings.LastIndex(rest, "@")
		host := rest[at+1:]
		host, _, _ = strings.Cut(host, "/")
		switch {
		case text == "":
		case strings.ContainsAny(strings.TrimSuffix(scheme, "://"), "@:"), !isHost(host):
			parts[i] = Hidden
		default:
			parts[i] = scheme + host
		}
	}
	return strings.Join(parts, ",")
}

// isHost reports whether text is HOST or HOST:PORT.
func isHost(text string) bool {
	host := text
	if h, port, err := net.SplitHostPort(text); err == nil {
		if strings.Trim(port, "0123456789") != "" || len(port) > 5 {
			return false
		}
		host = h
	}
	host = strings.Trim(host, "[]")
	return net.ParseIP(host) != nil || strings.Trim(host,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}

// Words returns text without the secrets of URLs and without these words. Words of less than four
// bytes stay: they are parts of other words.
func Words(text string, secrets ...string) string {
	for _, s := range secrets {
		if len(s) >= 4 {
			text = strings.ReplaceAll(text, s, Hidden)
		}
	}
	return Secrets(text)
}

// Unsafe reports whether a rune commands a terminal or changes the direction of what follows.
func Unsafe(r rune) bool {
	return unicode.IsControl(r) || r == utf8.RuneError || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
		r == 0x200e || r == 0x200f || r == 0x061c
}

// Line returns text as one line: unsafe runes become spaces.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if Unsafe(r) {
			return ' '
		}
		return r
	}, text)
}

// Lines is Line that keeps line ends and tabs.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && Unsafe(r) {
			return ' '
		}
		return r
	}, text)
}

// Short returns at most n bytes of text, with an ellipsis where it was cut.
func Short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + " …"
}
