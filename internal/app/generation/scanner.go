package generation

import "strings"

// Decoder makes text of tokens. It returns whole characters of UTF-8 only.
type Decoder interface {
	Add(id int32) string
	Flush() string
}

// scanner makes the text of a stream from its tokens. It ends the text before the first stop text,
// and keeps back text that may be the beginning of one. The text of each token depends on the
// tokens before it alone, so a resumed stream makes the same pieces.
type scanner struct {
	decoder Decoder
	stops   []string
	held    string
}

// add returns the text that a token releases, and whether a stop text has ended the stream.
func (s *scanner) add(id int32) (text string, stopped bool) {
	s.held += s.decoder.Add(id)
	return s.release(false)
}

// flush returns the rest of the text, behind the last token.
func (s *scanner) flush() (text string, stopped bool) {
	s.held += s.decoder.Flush()
	return s.release(true)
}

func (s *scanner) release(all bool) (text string, stopped bool) {
	first := -1
	for _, stop := range s.stops {
		if at := strings.Index(s.held, stop); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	if first >= 0 {
		text, s.held = s.held[:first], ""
		return text, true
	}
	keep := 0
	if !all {
		for _, stop := range s.stops {
			for n := min(len(stop)-1, len(s.held)); n > keep; n-- {
				if strings.HasSuffix(s.held, stop[:n]) {
					keep = n
				}
			}
		}
	}
	cut := len(s.held) - keep
	text, s.held = s.held[:cut], s.held[cut:]
	return text, false
}
